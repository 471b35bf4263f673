//! What is left of the sending halves while a session rests.

use super::Outbox;
use super::round::Round;
use super::senders::Outbound;
use crate::channel::{ChannelId, reliable, unreliable};

/// The numbers that a channel goes on with, which had nothing to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// What the next message is to its sender.
    message: u64,
    /// What it is on the wire.
    on_wire: u64,
}

impl Outbox {
    /// Keeps only the numbers of the channels, until the next message; nothing changes where something
    /// waits, is in flight, or is not told.
    pub fn rest(&mut self) {
        if self.resting.is_some() || !self.is_empty() || self.keeping != 0 {
            return;
        }
        let numbers = self.senders.channels.iter().map(|channel| match channel {
            Outbound::Reliable(outbound) => Numbers {
                message: outbound.next_message(),
                on_wire: 0,
            },
            Outbound::Unreliable(outbound) => {
                let (message, on_wire) = outbound.next_numbers();
                Numbers { message, on_wire }
            }
        });
        self.resting = Some(numbers.collect());
        self.senders.channels = Vec::new();
        self.rounds = Vec::new();
        self.busy = 0;
    }

    /// Makes the halves of the channels again, as they were.
    #[cold]
    pub(super) fn wake(&mut self) {
        let Some(resting) = self.resting.take() else {
            return;
        };
        let rows = (0..).map(ChannelId).zip(self.table.rows());
        self.senders.channels = rows
            .zip(resting)
            .map(|((id, row), numbers)| {
                let Numbers { message, on_wire } = numbers;
                if row.delivery.is_reliable() {
                    Outbound::Reliable(reliable::Outbound::new(id, message))
                } else {
                    let numbers = (message, on_wire);
                    Outbound::Unreliable(unreliable::Outbound::new(id, row.delivery, numbers))
                }
            })
            .collect();
        self.rounds = Round::of(&self.table);
    }

    /// Returns the heap memory that takes, bytes.
    pub(super) fn resting_memory(&self) -> usize {
        let channels = self.resting.as_ref().map_or(0, |resting| resting.len());
        channels.saturating_mul(size_of::<Numbers>())
    }
}
