"""The paper's models, for small pictures."""

from orlomo.tasks.models.resnet import resnet20, resnet32
from orlomo.tasks.models.squeezenet import squeezenet

__all__ = ["resnet20", "resnet32", "squeezenet"]
