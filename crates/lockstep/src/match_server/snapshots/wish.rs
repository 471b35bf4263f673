//! A snapshot that the application is asked for.

use core::time::Duration;

use wire::Instant;

use crate::event::ServerEvent;
use crate::input::Input;
use crate::match_server::MatchServer;
use crate::match_server::place::Place;

/// How long the application has to give a snapshot to each who waits for one; then whoever cannot do
/// without is put out.
const ANSWER_TIME: Duration = Duration::from_secs(20);

/// Time from a snapshot that was refused to the next question.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The application was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// When to ask again; `None` unless what it gave was refused.
    again_at: Option<Instant>,
    /// When it was asked first, of all who have waited since without anybody being served.
    begun: Instant,
}

impl Wish {
    /// Does not count so long, in which the process was paused.
    pub(super) fn excuse(&mut self, pause: Duration) {
        self.begun += pause;
    }
}

impl<I: Input> MatchServer<I> {
    /// Asks the application, once.
    pub(super) fn ask_application(&mut self, now: Instant) {
        if self.snapshots.wish.is_none() {
            self.snapshots.wish = Some(Wish {
                again_at: None,
                begun: now,
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

    /// Asks again where what was given was refused, and gives up on those who have waited for too
    /// long.
    pub(super) fn pursue_wish(&mut self, now: Instant) {
        if self.snapshots.wish.is_some() && !self.is_snapshot_wanted() {
            self.snapshots.wish = None;
        }
        let is_vain = self.vain_at().is_some_and(|at| at <= now);
        if is_vain {
            self.give_up_on_snapshots(now, ANSWER_TIME);
        }
        let is_wanted = self.is_snapshot_wanted();
        let Some(wish) = &mut self.snapshots.wish else {
            return;
        };
        if !is_wanted {
            self.snapshots.wish = None;
        } else if is_vain || wish.again_at.is_some_and(|at| at <= now) {
            wish.again_at = None;
            self.events.push_back(ServerEvent::SnapshotWanted);
        }
    }

    pub(super) fn wish_timeout(&self) -> Option<Instant> {
        let again_at = self.snapshots.wish?.again_at;
        again_at.into_iter().chain(self.vain_at()).min()
    }

    /// When the application was asked in vain for the one who has waited longest.
    fn vain_at(&self) -> Option<Instant> {
        let wish = self.snapshots.wish?;
        let players = self.places.iter().filter_map(Place::player);
        let players = players.filter_map(|player| player.waits_since);
        let since = players.chain(self.audience_waits_since()).min()?;
        Some(since.max(wish.begun) + ANSWER_TIME)
    }
}
