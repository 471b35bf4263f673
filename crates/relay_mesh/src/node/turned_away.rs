//! Rejected players, counted by game and reason, and reported once a minute.

use crypto::Provider;
use wire::Instant;

use super::Node;
use super::minute_counts::MinuteCounts;
use crate::event::{Event, TurnedAway};

/// Counts by game and reason.
pub(super) type TurnedAwayCounts = MinuteCounts<(String, TurnedAway), ()>;

impl<P: Provider> Node<P> {
    /// Counts a rejected player or packet.
    pub(super) fn turn_away(&mut self, now: Instant, game: Option<usize>, reason: TurnedAway) {
        let game = game.map(|game| self.game_name(game)).unwrap_or_default();
        self.turned_away.add(now, (game, reason), ());
    }

    /// Counts a rejected player of a TCP game.
    #[cfg(feature = "tcp")]
    pub(super) fn turn_away_from(&mut self, now: Instant, game: String, reason: TurnedAway) {
        self.turned_away.add(now, (game, reason), ());
    }

    /// Counts the player of a flow that ends. Tunnels belong to no single player and are not
    /// counted.
    pub(super) fn turn_away_flow(&mut self, now: Instant, index: u32, reason: TurnedAway) {
        let flow = self.flows.get(index);
        if let Some(game) = flow
            .filter(|flow| flow.side.is_of_player())
            .map(|flow| flow.game)
        {
            self.turn_away(now, Some(game), reason);
        }
    }

    /// Emits the counts that are due.
    pub(super) fn emit_turned_away(&mut self, now: Instant) {
        for ((game, reason), (), count) in self.turned_away.take_due(now) {
            self.emit(Event::TurnedAway {
                game,
                reason,
                count,
            });
        }
    }
}
