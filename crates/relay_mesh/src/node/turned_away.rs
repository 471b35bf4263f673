//! Players who are turned away: counted by game and reason, and told once a minute.

use core::time::Duration;
use std::collections::BTreeMap;

use crypto::Provider;
use wire::Instant;

use super::Node;
use crate::event::{Event, TurnedAway};

/// Counts by game and reason.
#[derive(Debug, Default)]
pub(super) struct TurnedAwayCounts {
    /// At most [`COUNTS_MAX`].
    counts: BTreeMap<(String, TurnedAway), Count>,
    /// When the first of them is due.
    due_at: Option<Instant>,
}

#[derive(Debug)]
struct Count {
    /// Since it was told last.
    count: u64,
    /// When it may be told again.
    due_at: Instant,
}

impl TurnedAwayCounts {
    /// Counts one. What is told at first waits for a second, so that its count says something.
    fn add(&mut self, now: Instant, game: String, reason: TurnedAway) {
        let key = (game, reason);
        if self.counts.len() >= COUNTS_MAX && !self.counts.contains_key(&key) {
            self.counts.retain(|_, of| of.count > 0 || now < of.due_at);
            if self.counts.len() >= COUNTS_MAX {
                return;
            }
        }
        let of = self.counts.entry(key).or_insert(Count {
            count: 0,
            due_at: now + FIRST_WAIT,
        });
        if of.count == 0 {
            of.due_at = of.due_at.max(now + FIRST_WAIT);
            let due_at = self.due_at.map_or(of.due_at, |due| due.min(of.due_at));
            self.due_at = Some(due_at);
        }
        of.count = of.count.saturating_add(1);
    }

    /// Takes what is due.
    fn take_due(&mut self, now: Instant) -> Vec<(String, TurnedAway, u64)> {
        if self.due_at.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let mut due = Vec::new();
        for ((game, reason), of) in &mut self.counts {
            if of.count > 0 && of.due_at <= now {
                due.push((game.clone(), *reason, of.count));
                (of.count, of.due_at) = (0, now + TELL_GAP);
            }
        }
        let waiting = self.counts.values().filter(|of| of.count > 0);
        self.due_at = waiting.map(|of| of.due_at).min();
        due
    }
}

impl<P: Provider> Node<P> {
    /// Counts a player or a packet that is turned away.
    pub(super) fn turn_away(&mut self, now: Instant, game: Option<usize>, reason: TurnedAway) {
        let game = game.map(|game| self.game_name(game)).unwrap_or_default();
        self.turned_away.add(now, game, reason);
    }

    /// The same of a TCP game.
    #[cfg(feature = "tcp")]
    pub(super) fn turn_away_from(&mut self, now: Instant, game: String, reason: TurnedAway) {
        self.turned_away.add(now, game, reason);
    }

    /// Counts the player of a flow that ends; a tunnel is of no one player.
    pub(super) fn turn_away_flow(&mut self, now: Instant, index: u32, reason: TurnedAway) {
        let flow = self.flows.get(index);
        if let Some(game) = flow
            .filter(|flow| flow.side.is_of_player())
            .map(|flow| flow.game)
        {
            self.turn_away(now, Some(game), reason);
        }
    }

    /// Tells what is due.
    pub(super) fn tell_turned_away(&mut self, now: Instant) {
        for (game, reason, count) in self.turned_away.take_due(now) {
            self.tell(Event::TurnedAway {
                game,
                reason,
                count,
            });
        }
    }
}

/// Time from the first of a kind until it is told.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Time between two events of one game and reason.
const TELL_GAP: Duration = Duration::from_secs(60);
/// Games and reasons remembered.
const COUNTS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_once_a_minute_with_its_count() {
        let at = Instant::from_millis;
        let mut counts = TurnedAwayCounts::default();
        let mut told = Vec::new();
        for tick in 0..1_800 {
            let now = at(tick * 100);
            counts.add(now, "doom".into(), TurnedAway::Ration);
            if tick == 300 {
                counts.add(now, "doom".into(), TurnedAway::TooLong);
            }
            let due = counts.take_due(now);
            told.extend(due.into_iter().map(|(_, why, count)| (tick, why, count)));
        }
        let expected = [
            (10, TurnedAway::Ration, 11),
            (310, TurnedAway::TooLong, 1),
            (610, TurnedAway::Ration, 600),
            (1_210, TurnedAway::Ration, 600),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_forgotten() {
        let at = Instant::from_millis;
        let mut counts = TurnedAwayCounts::default();
        for game in 0..2_000 {
            counts.add(at(0), format!("{game}"), TurnedAway::Ration);
        }
        assert_eq!(counts.counts.len(), COUNTS_MAX);
        assert_eq!(counts.take_due(at(1_000)).len(), COUNTS_MAX);
        counts.add(at(60_000), "one".into(), TurnedAway::Share);
        assert_eq!(counts.counts.len(), COUNTS_MAX, "there is no room");
        counts.add(at(61_000), "one".into(), TurnedAway::Share);
        assert_eq!(counts.counts.len(), 1);
        assert_eq!(counts.take_due(at(62_000)).len(), 1);
    }
}
