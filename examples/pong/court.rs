//! The game. It uses integers only, so that equal inputs give equal games on every machine.

use wire::{Reader, Truncated, Writer};

/// Units in a character cell.
pub(crate) const CELL: i32 = 16;
/// Width of the court in units; the paddles are at its ends.
pub(crate) const WIDTH: i32 = 60 * CELL;
/// Height of the court in units.
pub(crate) const HEIGHT: i32 = 20 * CELL;
/// Half the length of a paddle.
pub(crate) const REACH: i32 = 2 * CELL + CELL / 2;
/// Distance that a paddle moves per tick.
const STEP: i32 = 7;
/// Horizontal distance that the ball moves per tick.
const SPEED: i32 = 20;
/// Points that end a game.
pub(crate) const POINTS_MAX: u8 = 11;

/// A player's input in a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Move {
    #[default]
    Stay,
    Up,
    Down,
}

impl Move {
    pub(crate) const fn to_byte(self) -> u8 {
        match self {
            Self::Stay => 0,
            Self::Up => 1,
            Self::Down => 2,
        }
    }

    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Stay),
            1 => Some(Self::Up),
            2 => Some(Self::Down),
            _ => None,
        }
    }
}

/// The state of a game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Court {
    /// Ticks played.
    pub(crate) tick: u32,
    /// Position of the ball, from the upper left.
    pub(crate) ball: [i32; 2],
    /// Velocity of the ball per tick; known only to the server.
    velocity: [i32; 2],
    /// Centres of the paddles, from the top.
    pub(crate) paddles: [i32; 2],
    /// Points of the left and right player.
    pub(crate) points: [u8; 2],
}

impl Court {
    pub(crate) const fn new() -> Self {
        Self {
            tick: 0,
            ball: [WIDTH / 2, HEIGHT / 2],
            velocity: [SPEED, SPEED / 4],
            paddles: [HEIGHT / 2; 2],
            points: [0; 2],
        }
    }

    /// Simulates a tick.
    pub(crate) fn play(&mut self, moves: [Move; 2]) {
        self.tick = self.tick.saturating_add(1);
        for (paddle, what) in self.paddles.iter_mut().zip(moves) {
            let step = match what {
                Move::Stay => 0,
                Move::Up => -STEP,
                Move::Down => STEP,
            };
            *paddle = (*paddle + step).clamp(REACH, HEIGHT - REACH);
        }
        let [mut x, mut y] = self.ball;
        let [aside, down] = self.velocity;
        x += aside;
        y += down;
        if !(0..=HEIGHT).contains(&y) {
            y = if y < 0 { -y } else { 2 * HEIGHT - y };
            self.velocity = [aside, -down];
        }
        self.ball = [x, y];
        if !(0..=WIDTH).contains(&x) {
            self.reach_an_end();
        }
    }

    /// Handles a ball at an end: a paddle returns it, or the other side scores.
    fn reach_an_end(&mut self) {
        let [x, y] = self.ball;
        let is_left = x < 0;
        let ([left, right], [aside, _]) = (self.paddles, self.velocity);
        let off = y - if is_left { left } else { right };
        if off.abs() <= REACH {
            // The farther from the paddle's centre, the steeper the angle.
            self.velocity = [-aside, off * SPEED / (REACH + CELL / 2)];
            self.ball = [x.clamp(0, WIDTH), y];
            return;
        }
        let [left, right] = &mut self.points;
        let winner = if is_left { right } else { left };
        *winner = winner.saturating_add(1);
        // The ball is served to the side that lost the point, from a varying height.
        let height = i32::from(self.points.iter().sum::<u8>()) * 5 % 8;
        self.ball = [WIDTH / 2, HEIGHT * (height + 4) / 16];
        self.velocity = [aside, SPEED * (height - 4) / 5];
    }

    pub(crate) fn is_won(&self) -> bool {
        self.points.iter().any(|points| *points >= POINTS_MAX)
    }

    /// Returns the input of a simple bot at `seat`. It follows an approaching ball; the right-hand
    /// bot reacts late.
    pub(crate) fn bot(&self, seat: usize) -> Move {
        let [x, y] = self.ball;
        let mine = self.paddles.get(seat).copied().unwrap_or_default();
        let is_near = if seat == 0 {
            x < WIDTH * 2 / 3
        } else {
            x > WIDTH * 3 / 4
        };
        if !is_near || (y - mine).abs() < STEP {
            Move::Stay
        } else if y < mine {
            Move::Up
        } else {
            Move::Down
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.u32(self.tick);
        for value in self.ball.iter().chain(&self.paddles) {
            out.u16(u16::try_from(*value).unwrap_or_default());
        }
        out.bytes(&self.points);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self {
            tick: reader.u32()?,
            ball: [reader.u16()?.into(), reader.u16()?.into()],
            velocity: [0; 2],
            paddles: [reader.u16()?.into(), reader.u16()?.into()],
            points: reader.array()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ball_stays_on_the_court_and_every_state_round_trips() {
        let mut court = Court::new();
        let mut returned = 0;
        for tick in 0..20_000 {
            let aside = court.velocity[0];
            let before = court.points;
            court.play([court.bot(0), court.bot(1)]);
            assert!((0..=WIDTH).contains(&court.ball[0]), "{court:?}");
            assert!((0..=HEIGHT).contains(&court.ball[1]), "{court:?}");
            returned += u32::from(court.velocity[0] != aside);
            assert!(court.points.iter().sum::<u8>() - before.iter().sum::<u8>() <= 1);
            if court.is_won() {
                court.points = [0; 2];
            }
            let mut bytes = Vec::new();
            court.encode(&mut Writer::new(&mut bytes));
            let read = Court::decode(&mut Reader::new(&bytes)).unwrap();
            let shown = Court {
                velocity: [0; 2],
                ..court
            };
            assert_eq!(read, shown, "{tick}");
        }
        assert!(returned > 100, "{returned}");
    }

    #[test]
    fn fleeing_the_ball_loses() {
        let mut court = Court::new();
        while !court.is_won() {
            let is_low = court.ball[1] > HEIGHT / 2;
            let flight = if is_low { Move::Up } else { Move::Down };
            court.play([court.bot(0), flight]);
            assert!(court.tick < 20_000, "{court:?}");
        }
        assert_eq!(court.points[0], POINTS_MAX, "{court:?}");
    }

    #[test]
    fn paddles_stay_on_the_court() {
        let mut court = Court::new();
        for _ in 0..200 {
            court.play([Move::Up, Move::Down]);
        }
        assert_eq!(court.paddles, [REACH, HEIGHT - REACH]);
    }
}
