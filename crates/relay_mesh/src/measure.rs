//! Measurement of one neighbour: probe schedule, answers, and link quality.
//!
//! Probes are unreliable messages of the session with the neighbour, which authenticates them. Each
//! has an unpredictable ID, so that it cannot be answered in advance.
//!
//! A probe is *overdue* after the 95th percentile of the last 30 s plus the largest of 2 × jitter,
//! p95 / 8 and 30 ms, clamped to 50 ms to 1 s (1 s before the first answer). An overdue probe
//! counts as lost unless its answer still arrives. Based on this, a link is:
//!
//! - suspect: if one probe is overdue and nothing has arrived since it was sent. Probes are then
//!   sent every 50 ms.
//! - dead: if 3 probes in a row are overdue and nothing arrived meanwhile. On a link in use with
//!   100 ms of RTT and 3 ms of jitter, that is at most 220 + 133 + 50 + 133 = 536 ms after the
//!   failure.
//! - back: after 3 answers on a dead link.
//! - degraded: if in 3 windows of 200 ms in a row the best answer was 25 ms over the median, or all
//!   probes of the window were lost; or if 3 of the newest 20 probes were lost (that is one window
//!   in 1,000 at a true loss of 1 %, one in 13 at 5 %, 6 in 10 at 15 %).

mod probe;
mod prober;
mod report;
mod slice;
mod window;

pub use self::probe::{Echo, Probe};
pub use self::prober::{Health, Pace, Prober};
pub use self::report::LinkReport;
pub use self::window::{Summary, Window};
