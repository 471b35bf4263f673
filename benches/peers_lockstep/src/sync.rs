//! Each stack's sync test of a game: roll back some frames in each frame and simulate them again.

use core::marker::PhantomData;

use fortress_rollback::{FortressRequest, PlayerHandle};
use ggrs::{GgrsRequest, PredictRepeatLast};
use lockstep::{Sim, StateHasher, SyncTest, Turn};
use wire::{Generator, Seed};

use crate::cost::Contender;
use crate::play::{Pad, Play};
use crate::stack::fortress::Fortress;
use crate::stack::ggrs::Ggrs;
use crate::stack::tickwire_mesh::TickwireMesh;
use crate::stack::{FPS, Stack};

/// Name in the report.
pub const CASE: &str = "p8/sync-test";
/// Players, and resimulated frames per frame.
const PLAYERS: usize = 8;
const DISTANCE: usize = 7;

/// Returns the sync tests of the stacks for which `asks` is true. Tickwire's has the name of its
/// rollback stack.
pub fn contenders(asks: impl Fn(&str) -> bool) -> Vec<Contender> {
    let all: [(&'static str, Make); 3] = [
        (<TickwireMesh<Pad> as Stack<Pad>>::NAME, ours),
        (<Ggrs<Pad> as Stack<Pad>>::NAME, of_ggrs),
        (<Fortress<Pad> as Stack<Pad>>::NAME, of_fortress),
    ];
    let asked = all.into_iter().filter(|(name, _)| asks(name));
    asked
        .map(|(name, make)| Contender::of_frames(name, make()))
        .collect()
}

/// A workload of frames.
type Frames = Box<dyn FnMut()>;

/// Creates the workload.
type Make = fn() -> Frames;

/// A game with minimal state.
#[derive(Clone, Copy, Debug, Default)]
struct Trivial(u64);

impl Trivial {
    fn advance(&mut self, inputs: impl Iterator<Item = u64>) {
        self.0 = inputs.fold(self.0, |state, word| {
            (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
    }
}

/// The players' inputs.
struct Players {
    whims: Generator,
    inputs: [Pad; PLAYERS],
}

impl Players {
    fn new() -> Self {
        Self {
            whims: Seed::from_number(1).generator(0),
            inputs: [Pad::default(); PLAYERS],
        }
    }

    fn next(&mut self) -> &[Pad; PLAYERS] {
        for input in &mut self.inputs {
            *input = input.next(&mut self.whims);
        }
        &self.inputs
    }
}

impl Sim for Trivial {
    type Input = Pad;
    type Snapshot = u64;

    fn step(&mut self, turn: &Turn<'_, Pad>) {
        self.advance(turn.inputs().map(|(_, input, _)| input.word()));
    }

    fn save(&self, into: &mut u64) {
        *into = self.0;
    }

    fn load(&mut self, from: &u64) {
        self.0 = *from;
    }

    fn hash(&self, hasher: &mut StateHasher) {
        hasher.u64(self.0);
    }
}

fn ours() -> Frames {
    let seats = u16::try_from(PLAYERS).expect("few");
    let distance = u8::try_from(DISTANCE).expect("few");
    let mut test = SyncTest::new(Trivial::default(), seats, distance);
    let mut players = Players::new();
    Box::new(move || test.advance(players.next()).expect("the game is sound"))
}

/// The types of a session.
struct Terms(PhantomData<Pad>);

impl ggrs::Config for Terms {
    type Input = Pad;
    type InputPredictor = PredictRepeatLast;
    type State = u64;
    type Address = u32;
}

impl fortress_rollback::Config for Terms {
    type Input = Pad;
    type State = u64;
    type Address = u32;
}

fn of_ggrs() -> Frames {
    let builder = ggrs::SessionBuilder::<Terms>::new()
        .with_num_players(PLAYERS)
        .and_then(|it| it.with_fps(FPS as usize))
        .expect("a number of players");
    let session = builder
        .with_check_distance(DISTANCE)
        .start_synctest_session();
    let mut session = session.expect("a session");
    let (mut game, mut players) = (Trivial::default(), Players::new());
    Box::new(move || {
        for (handle, input) in players.next().iter().enumerate() {
            session
                .add_local_input(handle, *input)
                .expect("a local player");
        }
        for request in session.advance_frame().expect("the game is sound") {
            match request {
                GgrsRequest::SaveGameState { cell, frame } => {
                    cell.save(frame, Some(game.0), Some(game.0.into()));
                }
                GgrsRequest::LoadGameState { cell, .. } => {
                    game.0 = cell.load().expect("a state that was saved");
                }
                GgrsRequest::AdvanceFrame { inputs } => {
                    game.advance(inputs.into_iter().map(|(input, _)| input.word()));
                }
            }
        }
    })
}

fn of_fortress() -> Frames {
    let builder = fortress_rollback::SessionBuilder::<Terms>::new()
        .with_num_players(PLAYERS)
        .and_then(|it| it.with_fps(FPS as usize))
        .expect("a number of players");
    let session = builder
        .with_check_distance(DISTANCE)
        .start_synctest_session();
    let mut session = session.expect("a session");
    let (mut game, mut players) = (Trivial::default(), Players::new());
    Box::new(move || {
        for (handle, input) in players.next().iter().enumerate() {
            session
                .add_local_input(PlayerHandle::new(handle), *input)
                .expect("a local player");
        }
        for request in session.advance_frame().expect("the game is sound") {
            match request {
                FortressRequest::SaveGameState { cell, frame } => {
                    cell.save(frame, Some(game.0), Some(game.0.into()));
                }
                FortressRequest::LoadGameState { cell, .. } => {
                    game.0 = cell.load().expect("a state that was saved");
                }
                FortressRequest::AdvanceFrame { inputs } => {
                    game.advance(inputs.into_iter().map(|(input, _)| input.word()));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stack_runs_and_finds_no_fault() {
        let mut found = contenders(|_| true);
        assert_eq!(found.len(), 3);
        for contender in &mut found {
            let cost = contender.count(300, || 1);
            assert!(cost.player.is_finite(), "{}", contender.stack);
        }
        assert!(contenders(|name| name == "ggrs").len() == 1);
    }
}
