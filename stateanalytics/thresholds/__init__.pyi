from .advice import Advice as Advice
from .advice import recommend as recommend
from .costs import Costs as Costs
from .promises import review as review
from .trial import Trial as Trial
from .trial import plan_trial as plan_trial
from .worksheet import stale as stale
