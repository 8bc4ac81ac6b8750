from .advice import Advice as Advice
from .advice import recommend as recommend
from .costs import Costs as Costs
from .promises import review as review
from .worksheet import stale as stale
