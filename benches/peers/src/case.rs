//! What is sent in memory, in each case.

use core::time::Duration;

use crate::stack::Delivery;

/// A case in memory: who sends what, how often.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What rows call it.
    pub name: &'static str,
    /// How messages travel.
    pub delivery: Delivery,
    /// Bytes of each.
    pub len: usize,
    /// How many each sender sends each tick.
    pub count: usize,
    /// Who sends.
    pub direction: Direction,
    /// Messages that may be under way; beyond it a tick sends none.
    pub window: u64,
    /// From one tick to the next; what one end sends, the other gets half of it later.
    pub tick: Duration,
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Both ends.
    Both,
    /// The client.
    Up,
}

/// A tick of 60 Hz.
const TICK: Duration = Duration::from_nanos(16_666_667);

/// All of them.
pub const CASES: [Case; 5] = [
    Case::game("u100", Delivery::Unreliable, 100),
    Case::game("r100", Delivery::Reliable, 100),
    Case::game("u1000", Delivery::Unreliable, 1_000),
    Case {
        count: 32,
        direction: Direction::Up,
        ..Case::game("packed32x100", Delivery::Unreliable, 100)
    },
    // One after another: a message leaves when the one before has come.
    Case {
        direction: Direction::Up,
        window: 0,
        tick: Duration::from_millis(1),
        ..Case::game("frag64k", Delivery::Bulk, 65_536)
    },
];

impl Case {
    /// One message each way each tick.
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
