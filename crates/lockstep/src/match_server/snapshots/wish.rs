//! A snapshot that the application is asked for.

use core::time::Duration;

use wire::Instant;

use crate::event::ServerEvent;
use crate::input::Input;
use crate::match_server::MatchServer;

/// How long the application has to give a snapshot; then whoever cannot do without one is put out.
const ANSWER_TIME: Duration = Duration::from_secs(20);

/// Time from a snapshot that was refused to the next question.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The application was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// When to ask again; `None` unless what it gave was refused.
    again_at: Option<Instant>,
    /// When to give it up.
    until: Instant,
}

impl Wish {
    pub(super) fn poll_timeout(&self) -> Instant {
        let again = self.again_at.unwrap_or(self.until);
        again.min(self.until)
    }

    /// Does not count so long, in which the process was paused.
    pub(super) fn excuse(&mut self, pause: Duration) {
        self.until += pause;
    }
}

impl<I: Input> MatchServer<I> {
    /// Asks the application, once.
    pub(super) fn ask_application(&mut self, now: Instant) {
        if self.snapshots.wish.is_none() {
            self.snapshots.wish = Some(Wish {
                again_at: None,
                until: now + ANSWER_TIME,
            });
            self.events.push_back(ServerEvent::SnapshotWanted);
        }
    }

    /// Takes note that what the application gave is of no use.
    pub(super) fn on_snapshot_refused(&mut self, now: Instant) {
        if let Some(wish) = &mut self.snapshots.wish {
            wish.again_at.get_or_insert(now + ASK_AGAIN);
        }
    }

    /// Asks again where what was given was refused, and gives up where nothing comes.
    pub(super) fn pursue_wish(&mut self, now: Instant) {
        if self.snapshots.wish.is_some() && !self.is_snapshot_wanted() {
            self.snapshots.wish = None;
        }
        let Some(wish) = &mut self.snapshots.wish else {
            return;
        };
        if wish.until <= now {
            self.snapshots.wish = None;
            self.give_up_on_snapshots();
        } else if wish.again_at.is_some_and(|at| at <= now) {
            wish.again_at = None;
            self.events.push_back(ServerEvent::SnapshotWanted);
        }
    }
}
