# The public names, each once: type checkers read this file, and so does `__init__.py`.
from . import charts as charts
from . import detectors as detectors
from . import errors as errors
from . import failures as failures
from . import survival as survival
from . import thresholds as thresholds
from .auditing import audit as audit
from .core.session_health import classify_session_health as classify_session_health
from .io.budget import Budget as Budget
from .live import watch as watch
from .queries import attention as attention
from .queries import changes as changes
from .queries import phantoms as phantoms
from .reporting import report as report
from .reporting.ledger import diff as diff
from .snapshot import Snapshot as Snapshot
from .snapshot import demo as demo
from .snapshot import read as read
from .state.health import derive_severity as derive_severity
from .state.policy import Policy as Policy
from .state.reasons import reason_codes as reason_codes
from .state.states import compare_policies as compare_policies
from .state.states import reasons as reasons
from .state.states import states as states
from .summaries import Summary as Summary
from .summaries import merge as merge
from .summaries import summarize as summarize
from .systems.archiving import collect as collect
from .widgets import DetectorExplorer as DetectorExplorer
from .widgets import ThresholdWorksheet as ThresholdWorksheet
from .widgets import explore as explore
from .widgets import session as session

__version__: str

def load_ipython_extension(shell: object) -> None: ...
def unload_ipython_extension(shell: object) -> None: ...
