#!/bin/bash
# Run a command until it succeeds, three times at most: what is fetched can fail for a moment.
#
#   scripts/kube/thrice.sh COMMAND [ARGUMENTS]
set -u

for attempt in 1 2 3; do
  if "$@"; then
    exit 0
  fi
  echo "attempt $attempt of 3 failed: $*" >&2
  if [ "$attempt" != 3 ]; then
    sleep $((attempt * 5))
  fi
done
exit 1
