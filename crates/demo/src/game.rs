//! The game of the demonstration: movers on a torus pick up coins.
//!
//! Integers only, no randomness but its own generator, no order but that of seats: two runs on the
//! same inputs are equal bit for bit, on every platform.

use lockstep::bits::{BitReader, BitWriter};
use lockstep::{Input, Sim, SnapshotBytes, StateHasher, Turn, Width};
use wire::codec::{Reader, Truncated, Writer};
use wire::{Generator, MatchId, Seat, Seed};

/// The state of one match; by default, of one without players and coins.
#[derive(Clone, Debug, Default)]
pub struct Game {
    avatars: Vec<Avatar>,
    /// Where coins lie; one that is picked up appears elsewhere.
    coins: Vec<Point>,
    /// Decides where; part of the state.
    rng: Rng,
    steps: u32,
}

impl Game {
    /// Sets the board up for `seats` players.
    #[must_use]
    pub fn new(seed: Seed, seats: u16) -> Self {
        let mut rng = Rng::new(&mut seed.generator(SETUP));
        Self {
            avatars: (0..seats).map(|_| Avatar::at(rng.point())).collect(),
            coins: (0..COINS).map(|_| rng.point()).collect(),
            rng,
            steps: 0,
        }
    }

    /// Makes one step; `inputs` may be in any order, and a seat without one does nothing.
    pub fn step(&mut self, inputs: impl IntoIterator<Item = (Seat, Buttons)>) {
        let mut pressed = vec![Buttons::default(); self.avatars.len()];
        for (seat, buttons) in inputs {
            if let Some(place) = pressed.get_mut(usize::from(seat.0)) {
                *place = buttons;
            }
        }
        for (avatar, buttons) in self.avatars.iter_mut().zip(pressed) {
            avatar.step(buttons);
        }
        self.pick_up();
        self.steps = self.steps.wrapping_add(1);
    }

    /// Returns the hash of the whole state, keyed by the match.
    #[must_use]
    pub fn hash(&self, match_id: MatchId) -> u64 {
        let mut hasher = StateHasher::new(match_id);
        Sim::hash(self, &mut hasher);
        hasher.finish()
    }

    /// Moves one player by the smallest step there is: what a fault of one machine would do.
    pub fn disturb(&mut self, seat: Seat) {
        if let Some(avatar) = self.avatars.get_mut(usize::from(seat.0)) {
            avatar.position.x = avatar.position.x.wrapping_add(1);
        }
    }

    /// Returns the coins that each player has picked up, in seat order.
    pub fn scores(&self) -> impl Iterator<Item = u32> {
        self.avatars.iter().map(|avatar| avatar.score)
    }

    /// Gives each coin to the first mover, in seat order, that touches it.
    fn pick_up(&mut self) {
        for coin in &mut self.coins {
            let taker = self
                .avatars
                .iter_mut()
                .find(|avatar| avatar.position.touches(*coin));
            if let Some(taker) = taker {
                taker.score = taker.score.wrapping_add(1);
                *coin = self.rng.point();
            }
        }
    }
}

/// What a player does: four directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buttons(u8);

impl Buttons {
    /// Towards smaller x.
    pub const LEFT: Self = Self(1);
    /// Towards larger x.
    pub const RIGHT: Self = Self(2);
    /// Towards smaller y.
    pub const UP: Self = Self(4);
    /// Towards larger y.
    pub const DOWN: Self = Self(8);

    /// Returns both, pressed at once.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns -1, 0 or 1: which of two opposite buttons is pressed.
    const fn axis(self, less: Self, more: Self) -> i16 {
        match (self.has(less), self.has(more)) {
            (true, false) => -1,
            (false, true) => 1,
            (true, true) | (false, false) => 0,
        }
    }
}

impl Input for Buttons {
    const WIDTH: Width = Width::bits::<4>();

    fn write(&self, out: &mut BitWriter<'_>) {
        out.bits(self.0.into(), 4);
    }

    fn read(bits: &mut BitReader<'_>) -> Option<Self> {
        u8::try_from(bits.bits(4).ok()?).ok().map(Self)
    }
}

#[derive(Clone, Copy, Debug)]
struct Avatar {
    position: Point,
    /// Per step, in 1/65,536 of the board; negative is left.
    speed_x: i16,
    /// The same; negative is up.
    speed_y: i16,
    score: u32,
}

impl Avatar {
    const fn at(position: Point) -> Self {
        Self {
            position,
            speed_x: 0,
            speed_y: 0,
            score: 0,
        }
    }

    const fn step(&mut self, buttons: Buttons) {
        self.speed_x = accelerate(self.speed_x, buttons.axis(Buttons::LEFT, Buttons::RIGHT));
        self.speed_y = accelerate(self.speed_y, buttons.axis(Buttons::UP, Buttons::DOWN));
        self.position.x = self.position.x.wrapping_add_signed(self.speed_x);
        self.position.y = self.position.y.wrapping_add_signed(self.speed_y);
    }
}

/// Friction takes an eighth, a button adds.
const fn accelerate(speed: i16, direction: i16) -> i16 {
    speed
        .saturating_sub(speed / 8)
        .saturating_add(direction.saturating_mul(THRUST))
}

/// A place on the torus; coordinates wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    x: u16,
    y: u16,
}

impl Point {
    /// Returns the way from here to `other`, the short way round.
    const fn towards(self, other: Self) -> (i16, i16) {
        (
            other.x.wrapping_sub(self.x).cast_signed(),
            other.y.wrapping_sub(self.y).cast_signed(),
        )
    }

    const fn touches(self, other: Self) -> bool {
        let (x, y) = self.towards(other);
        x.unsigned_abs() < REACH && y.unsigned_abs() < REACH
    }

    fn hash(self, hasher: &mut StateHasher) {
        hasher.u32((u32::from(self.x) << 16) | u32::from(self.y));
    }
}

/// The generator inside the state; `SplitMix64` (Steele, Lea, Flood, 2014).
#[derive(Clone, Copy, Debug, Default)]
struct Rng(u64);

impl Rng {
    fn new(generator: &mut Generator) -> Self {
        Self(generator.next_u64())
    }

    const fn point(&mut self) -> Point {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let [a, b, c, d, ..] = (mixed ^ (mixed >> 31)).to_be_bytes();
        Point {
            x: u16::from_be_bytes([a, b]),
            y: u16::from_be_bytes([c, d]),
        }
    }
}

const COINS: usize = 12;
/// What one step of a button adds to the speed.
const THRUST: i16 = 60;
/// How near a coin has to be, in 1/65,536 of the board.
const REACH: u16 = 1_500;
const SETUP: u64 = 1;

/// Plays one seat.
#[derive(Debug)]
pub struct Bot {
    seat: Seat,
    generator: Generator,
    impulse: Buttons,
    impulse_steps: u8,
}

impl Bot {
    /// Makes the bot of `seat`; equal seeds give equal bots.
    #[must_use]
    pub fn new(seed: Seed, seat: Seat) -> Self {
        Self {
            seat,
            generator: seed.generator(IMPULSES | u64::from(seat.0)),
            impulse: Buttons::default(),
            impulse_steps: 0,
        }
    }

    /// Returns the seat that it plays.
    #[must_use]
    pub const fn seat(&self) -> Seat {
        self.seat
    }

    /// Looks at the board and decides.
    pub fn press(&mut self, game: &Game) -> Buttons {
        if let Some(rest) = self.impulse_steps.checked_sub(1) {
            self.impulse_steps = rest;
            return self.impulse;
        }
        if self.generator.chance(IMPULSE_PER_MILLION) {
            let directions = [Buttons::LEFT, Buttons::RIGHT, Buttons::UP, Buttons::DOWN];
            let at = usize::try_from(self.generator.below(4)).unwrap_or(0);
            self.impulse = directions.get(at).copied().unwrap_or_default();
            self.impulse_steps = 10;
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
const IMPULSE_PER_MILLION: u32 = 10_000;
/// Stream of the seed; the seat is in the low bits.
const IMPULSES: u64 = 2 << 32;

impl Sim for Game {
    type Input = Buttons;
    type Snapshot = Self;

    fn step(&mut self, turn: &Turn<'_, Buttons>) {
        self.step(turn.inputs().map(|(seat, buttons, _)| (seat, buttons)));
    }

    fn save(&self, into: &mut Self) {
        into.load(self);
    }

    fn load(&mut self, from: &Self) {
        self.avatars.clone_from(&from.avatars);
        self.coins.clone_from(&from.coins);
        self.rng = from.rng;
        self.steps = from.steps;
    }

    fn hash(&self, hasher: &mut StateHasher) {
        hasher.u32(self.steps);
        hasher.u64(self.rng.0);
        for avatar in &self.avatars {
            avatar.position.hash(hasher);
            hasher.i64(avatar.speed_x.into());
            hasher.i64(avatar.speed_y.into());
            hasher.u32(avatar.score);
        }
        for coin in &self.coins {
            coin.hash(hasher);
        }
    }
}

/// 4 bytes of steps, 8 of luck, 4 for each of 12 coins, then 12 for each player.
impl SnapshotBytes for Game {
    fn write(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u32(self.steps);
        writer.u64(self.rng.0);
        for coin in &self.coins {
            coin.write(&mut writer);
        }
        for avatar in &self.avatars {
            avatar.position.write(&mut writer);
            writer.u16(avatar.speed_x.cast_unsigned());
            writer.u16(avatar.speed_y.cast_unsigned());
            writer.u32(avatar.score);
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (steps, rng) = (reader.u32().ok()?, Rng(reader.u64().ok()?));
        let coins = (0..COINS).map(|_| Point::read(&mut reader));
        let coins = coins.collect::<Result<_, _>>().ok()?;
        let mut avatars = Vec::new();
        while !reader.is_empty() {
            avatars.push(Avatar::read(&mut reader).ok()?);
        }
        Some(Self {
            avatars,
            coins,
            rng,
            steps,
        })
    }
}

impl Avatar {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self {
            position: Point::read(reader)?,
            speed_x: reader.u16()?.cast_signed(),
            speed_y: reader.u16()?.cast_signed(),
            score: reader.u32()?,
        })
    }
}

impl Point {
    fn write(self, writer: &mut Writer<'_>) {
        writer.u16(self.x);
        writer.u16(self.y);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self {
            x: reader.u16()?,
            y: reader.u16()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use wire::{MatchId, Seat, Seed};

    use super::*;

    const ID: MatchId = MatchId([9; 16]);

    #[test]
    fn equal_inputs_give_equal_hashes_in_any_order() {
        let seed = Seed::from_number(5);
        let mut generator = seed.generator(0);
        let (mut one, mut other) = (Game::new(seed, 8), Game::new(seed, 8));
        for step in 0..2_000 {
            let inputs: Vec<_> = (0..8)
                .map(|seat| {
                    (
                        Seat(seat),
                        Buttons(u8::try_from(generator.below(16)).unwrap()),
                    )
                })
                .collect();
            one.step(inputs.iter().copied());
            other.step(inputs.iter().rev().copied());
            assert_eq!(one.hash(ID), other.hash(ID), "step {step}");
        }
        assert!(one.scores().sum::<u32>() > 0, "nobody ever touched a coin");
    }

    #[test]
    fn one_different_button_or_bit_changes_the_hash() {
        let game = Game::new(Seed::from_number(6), 2);
        let mut moved = game.clone();
        let mut still = game;
        moved.step([(Seat(1), Buttons::LEFT)]);
        still.step([]);
        assert_ne!(moved.hash(ID), still.hash(ID));
        let mut disturbed = still.clone();
        disturbed.disturb(Seat(0));
        assert_ne!(disturbed.hash(ID), still.hash(ID));
    }

    #[test]
    fn the_game_is_frozen() {
        // Two builds that play together must agree.
        let mut game = Game::new(Seed::from_number(1), 3);
        for _ in 0..100 {
            game.step([
                (Seat(0), Buttons::LEFT.and(Buttons::UP)),
                (Seat(2), Buttons::DOWN),
            ]);
        }
        assert_eq!(game.hash(ID), FROZEN);
    }

    const FROZEN: u64 = 12_820_326_698_094_621_355;

    #[test]
    fn bots_pick_up_coins() {
        let seed = Seed::from_number(2);
        let mut game = Game::new(seed, 4);
        let mut bots: Vec<_> = (0..4).map(|seat| Bot::new(seed, Seat(seat))).collect();
        for _ in 0..900 {
            let inputs: Vec<_> = bots
                .iter_mut()
                .map(|bot| (bot.seat(), bot.press(&game)))
                .collect();
            game.step(inputs);
        }
        assert!(
            game.scores().all(|score| score > 5),
            "{:?}",
            game.scores().collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_snapshot_restores_the_same_game() {
        let id = MatchId([3; 16]);
        let mut game = Game::new(Seed::from_number(4), 3);
        let mut held = Game::default();
        for _ in 0..200 {
            game.step([(Seat(1), Buttons::RIGHT), (Seat(2), Buttons::UP)]);
        }
        game.save(&mut held);
        let mut bytes = Vec::new();
        held.write(&mut bytes);
        assert_eq!(bytes.len(), 4 + 8 + 12 * 4 + 3 * 12);
        let mut read = Game::read(&bytes).unwrap();
        for _ in 0..200 {
            let inputs = [(Seat(0), Buttons::LEFT), (Seat(2), Buttons::DOWN)];
            game.step(inputs);
            held.step(inputs);
            read.step(inputs);
        }
        assert_eq!(held.hash(id), game.hash(id));
        assert_eq!(read.hash(id), game.hash(id));
        for len in (0..bytes.len()).filter(|len| ![60, 72, 84].contains(len)) {
            assert!(Game::read(&bytes[..len]).is_none(), "{len} bytes");
        }
    }
}
