//! Long polls: who waits for which ticket.

use std::collections::BTreeMap;

use matchmaker_core::{TicketId, TicketState};
use tokio::sync::oneshot;

use super::request::Unknown;

type Answer = oneshot::Sender<Result<TicketState, Unknown>>;

/// Who waits for which ticket to have a seat or to end.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    by_ticket: BTreeMap<TicketId, Vec<Answer>>,
    count: usize,
}

impl Waiters {
    /// Adds one who waits; hands it back where no more may wait.
    pub(super) fn add(&mut self, ticket: TicketId, answer: Answer) -> Result<(), Answer> {
        if self.count >= WAITERS_MAX {
            // Those whose time is over are known only by a look.
            self.drop_closed();
            if self.count >= WAITERS_MAX {
                return Err(answer);
            }
        }
        let waiting = self.by_ticket.entry(ticket).or_default();
        let before = waiting.len();
        waiting.retain(|answer| !answer.is_closed());
        waiting.push(answer);
        let after = waiting.len();
        self.count = self.count.saturating_sub(before).saturating_add(after);
        Ok(())
    }

    /// Returns all who wait for `ticket`, who wait no longer.
    pub(super) fn take(&mut self, ticket: TicketId) -> Vec<Answer> {
        let waiting = self.by_ticket.remove(&ticket).unwrap_or_default();
        self.count = self.count.saturating_sub(waiting.len());
        waiting
    }

    /// Returns the tickets that somebody waits for.
    pub(super) fn tickets(&self) -> Vec<TicketId> {
        self.by_ticket.keys().copied().collect()
    }

    fn drop_closed(&mut self) {
        self.by_ticket.retain(|_, waiting| {
            waiting.retain(|answer| !answer.is_closed());
            !waiting.is_empty()
        });
        self.count = self.by_ticket.values().map(Vec::len).sum();
    }
}

/// How many may wait at a time; the edge allows fewer.
const WAITERS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_gone_makes_room() {
        let mut waiters = Waiters::default();
        let mut patient = Vec::new();
        for number in 0..WAITERS_MAX {
            let (answer, wait) = oneshot::channel();
            waiters.add(TicketId(number as u64 / 4), answer).unwrap();
            patient.push(wait);
        }
        let (answer, _wait) = oneshot::channel();
        let answer = waiters.add(TicketId(1), answer).unwrap_err();
        assert_eq!(waiters.take(TicketId(0)).len(), 4);
        patient.truncate(8);
        waiters.add(TicketId(2), answer).unwrap();
        assert_eq!(
            waiters.take(TicketId(2)).len(),
            1,
            "the four before have gone"
        );
        waiters.drop_closed();
        assert_eq!((waiters.count, waiters.tickets()), (4, vec![TicketId(1)]));
    }

    #[test]
    fn asking_again_and_again_holds_one_place() {
        let mut waiters = Waiters::default();
        for _ in 0..1_000 {
            let (answer, wait) = oneshot::channel();
            waiters.add(TicketId(7), answer).unwrap();
            drop(wait);
        }
        assert_eq!(waiters.count, 1);
    }
}
