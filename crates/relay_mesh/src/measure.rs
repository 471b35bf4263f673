//! Measuring one neighbour: when to probe it, what came back, how good the link is.
//!
//! Probes are unreliable messages of the session with the neighbour, which authenticates them.
//! Each carries an id that the neighbour cannot foresee, so an answer cannot be sent ahead.
//!
//! Times of one probe, from its sending: it is *overdue* after the 95th percentile of the last
//! 30 s plus the largest of 2 × jitter, p95 / 8 and 30 ms, within 50 ms to 1 s (1 s before the
//! first answer). Overdue counts as lost until its answer comes after all. Rules on top:
//!
//! - suspect: one probe is overdue and nothing was heard since it was sent; probes then go out
//!   each 50 ms;
//! - dead: 3 probes in a row are overdue and nothing was heard meanwhile. On a link in use, at
//!   100 ms of RTT with 3 ms of jitter, that is at most 220 + 133 + 50 + 133 = 536 ms after the
//!   failure;
//! - back: 3 answers after death;
//! - degraded: in 3 windows of 200 ms in a row the best answer was 25 ms over the median, or all
//!   probes of the window were lost; or 3 of the newest 20 probes were lost (which a true 1 % of
//!   loss shows in one window of 1,000, 5 % in one of 13, 15 % in 6 of 10).

mod probe;
mod prober;
mod report;
mod slice;
mod window;

pub use self::probe::{Echo, Probe};
pub use self::prober::{Health, Pace, Prober};
pub use self::report::LinkReport;
pub use self::window::{Summary, Window};
