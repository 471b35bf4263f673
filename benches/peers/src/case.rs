//! The in-memory cases.

use core::time::Duration;

use crate::stack::Delivery;

/// An in-memory case: which end sends which messages, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name in rows.
    pub name: &'static str,
    /// Delivery of the messages.
    pub delivery: Delivery,
    /// Bytes per message.
    pub len: usize,
    /// Messages per sender and tick.
    pub count: usize,
    /// Which ends send.
    pub direction: Direction,
    /// Maximum messages in flight. Beyond it, a tick sends none.
    pub window: u64,
    /// Length of a tick. A datagram takes half of it to the other end.
    pub tick: Duration,
}

/// Which ends send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Both ends.
    Both,
    /// Only the client.
    Up,
}

/// A tick of 60 Hz.
const TICK: Duration = Duration::from_nanos(16_666_667);

/// All cases.
pub const CASES: [Case; 5] = [
    Case::game("u100", Delivery::Unreliable, 100),
    Case::game("r100", Delivery::Reliable, 100),
    Case::game("u1000", Delivery::Unreliable, 1_000),
    Case {
        count: 32,
        direction: Direction::Up,
        ..Case::game("packed32x100", Delivery::Unreliable, 100)
    },
    // One at a time: a message is sent when the last one has arrived.
    Case {
        direction: Direction::Up,
        window: 0,
        tick: Duration::from_millis(1),
        ..Case::game("frag64k", Delivery::Bulk, 65_536)
    },
];

impl Case {
    /// One message per direction and tick.
    const fn game(name: &'static str, delivery: Delivery, len: usize) -> Self {
        Self {
            name,
            delivery,
            len,
            count: 1,
            direction: Direction::Both,
            window: u64::MAX,
            tick: TICK,
        }
    }
}
