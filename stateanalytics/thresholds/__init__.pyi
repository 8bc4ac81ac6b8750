from .advice import Advice as Advice
from .advice import covering as covering
from .advice import recommend as recommend
from .choice import Costs as Costs
from .promises import review as review
from .settings import stale as stale
