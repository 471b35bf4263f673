//! A player without a person: it runs for the nearest coin, and sometimes does something else.

use wire::{Generator, Seat, Seed};

use super::{Buttons, Game};

/// Plays one seat.
#[derive(Debug)]
pub struct Bot {
    seat: Seat,
    generator: Generator,
    /// What it does until `whim_steps` are over.
    whim: Buttons,
    whim_steps: u8,
}

impl Bot {
    /// Makes the bot of `seat`; equal seeds give equal bots.
    #[must_use]
    pub fn new(seed: Seed, seat: Seat) -> Self {
        Self {
            seat,
            generator: seed.generator(WHIMS | u64::from(seat.0)),
            whim: Buttons::default(),
            whim_steps: 0,
        }
    }

    /// Returns the seat that it plays.
    #[must_use]
    pub const fn seat(&self) -> Seat {
        self.seat
    }

    /// Looks at the board and decides.
    pub fn press(&mut self, game: &Game) -> Buttons {
        if let Some(rest) = self.whim_steps.checked_sub(1) {
            self.whim_steps = rest;
            return self.whim;
        }
        if self.generator.chance(WHIM_PER_MILLION) {
            let directions = [Buttons::LEFT, Buttons::RIGHT, Buttons::UP, Buttons::DOWN];
            let at = usize::try_from(self.generator.below(4)).unwrap_or(0);
            self.whim = directions.get(at).copied().unwrap_or_default();
            self.whim_steps = 10;
        }
        let Some(avatar) = game.avatars.get(usize::from(self.seat.0)) else {
            return Buttons::default();
        };
        let routes = game.coins.iter().map(|coin| avatar.position.towards(*coin));
        let nearest = routes.min_by_key(|(x, y)| {
            u32::from(x.unsigned_abs()).saturating_add(u32::from(y.unsigned_abs()))
        });
        let (x, y) = nearest.unwrap_or_default();
        towards(x, Buttons::LEFT, Buttons::RIGHT).and(towards(y, Buttons::UP, Buttons::DOWN))
    }
}

fn towards(route: i16, less: Buttons, more: Buttons) -> Buttons {
    if route.unsigned_abs() < NEAR {
        Buttons::default()
    } else if route < 0 {
        less
    } else {
        more
    }
}

/// Close enough not to correct.
const NEAR: u16 = 400;
/// How often a bot does something for no reason, each step.
const WHIM_PER_MILLION: u32 = 10_000;
/// Stream of the seed; the seat is in the low bits.
const WHIMS: u64 = 2 << 32;
