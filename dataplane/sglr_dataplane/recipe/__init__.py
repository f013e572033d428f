"""Recipes: what one model needs around its workers, loaded before the first request."""

from sglr_dataplane.recipe.loading import load_recipe
from sglr_dataplane.recipe.recipe import PromptIds, Recipe
from sglr_dataplane.recipe.recipes import Recipes

__all__ = ["PromptIds", "Recipe", "Recipes", "load_recipe"]
