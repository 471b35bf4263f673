//! The game as lockstep drives it: stepped, saved, loaded, and as bytes.

use lockstep::{Sim, SnapshotBytes, StateHasher, Turn};
use wire::codec::{Reader, Truncated, Writer};

use super::{Avatar, Buttons, COINS, Game, Point, Rng};

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
    use super::*;
    use wire::{MatchId, Seat, Seed};

    #[test]
    fn a_snapshot_is_the_same_game_in_memory_and_as_bytes() {
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
