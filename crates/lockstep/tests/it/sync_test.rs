//! The sync test detects games that depend on more than their turns, and no others.

use lockstep::{Divergence, Sim, StateHasher, SyncFault, SyncTest, Tick, Turn};
use wire::Seed;

use crate::alloc::allocations;
use crate::rollback_world::Game;

#[test]
fn a_sound_game_passes_at_every_distance() {
    for distance in [0, 1, 2, 7, 32, 255] {
        let mut test = SyncTest::new(Game::default(), 8, distance);
        let mut generator = Seed::from_number(distance.into()).generator(0);
        test.run(&mut generator, 300).unwrap();
        assert_eq!((test.tick(), test.game().at), (Tick(300), 300));
    }
}

/// A game with one defect in one tick.
#[derive(Debug, Default)]
struct Faulty {
    sound: Game,
    fault: Fault,
    /// State that is not saved.
    unsaved: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum Fault {
    #[default]
    None,
    /// The step of this tick depends on the number of steps simulated.
    Counts(u32),
    /// Loading the state before this tick flips a bit.
    Loads(u32),
    /// A value that this tick does not save affects the step after next.
    Forgets(u32),
}

impl Sim for Faulty {
    type Input = u16;
    type Snapshot = (u64, u32);

    fn step(&mut self, turn: &Turn<'_, u16>) {
        let tick = self.sound.at;
        self.sound.step(turn);
        match self.fault {
            Fault::Counts(at) => {
                self.unsaved += 1;
                if tick == at {
                    self.sound.state ^= self.unsaved;
                }
            }
            Fault::Forgets(at) if tick == at => self.unsaved = 0,
            Fault::Forgets(at) if tick == at + 1 => self.unsaved = 9,
            Fault::Forgets(at) if tick == at + 2 => self.sound.state ^= self.unsaved,
            Fault::None | Fault::Loads(_) | Fault::Forgets(_) => {}
        }
    }

    fn save(&self, into: &mut (u64, u32)) {
        self.sound.save(into);
    }

    fn load(&mut self, from: &(u64, u32)) {
        self.sound.load(from);
        if matches!(self.fault, Fault::Loads(at) if at == self.sound.at) {
            self.sound.state ^= 1;
        }
        if matches!(self.fault, Fault::Forgets(at) if at + 2 == self.sound.at) {
            self.unsaved = 0;
        }
    }

    fn hash(&self, hasher: &mut StateHasher) {
        self.sound.hash(hasher);
    }
}

fn found(fault: Fault) -> Result<(), Divergence> {
    let game = Faulty {
        fault,
        ..Faulty::default()
    };
    let mut generator = Seed::from_number(5).generator(0);
    SyncTest::new(game, 3, 7).run(&mut generator, 200)
}

#[test]
fn the_first_divergent_tick_is_named_whatever_it_is() {
    assert_eq!(found(Fault::None), Ok(()));
    for tick in [0, 1, 6, 7, 8, 100, 150] {
        for (fault, at, cause) in [
            (Fault::Counts(tick), tick, SyncFault::Step),
            (Fault::Loads(tick + 1), tick, SyncFault::Load),
            (Fault::Forgets(tick), tick + 2, SyncFault::Step),
        ] {
            let divergence = found(fault).unwrap_err();
            let named = (divergence.tick, divergence.cause);
            assert_eq!(named, (Tick(at), cause), "{fault:?}");
        }
    }
}

#[test]
fn given_inputs_are_used_and_missing_ones_are_the_default() {
    /// The sum of all inputs, by seat.
    #[derive(Default)]
    struct Sum([u64; 3]);
    impl Sim for Sum {
        type Input = u16;
        type Snapshot = [u64; 3];
        fn step(&mut self, turn: &Turn<'_, u16>) {
            for (sum, (_, input, _)) in self.0.iter_mut().zip(turn.inputs()) {
                *sum += u64::from(input);
            }
        }
        fn save(&self, into: &mut [u64; 3]) {
            *into = self.0;
        }
        fn load(&mut self, from: &[u64; 3]) {
            self.0 = *from;
        }
        fn hash(&self, hasher: &mut StateHasher) {
            self.0.iter().for_each(|sum| hasher.u64(*sum));
        }
    }
    let mut test = SyncTest::new(Sum::default(), 3, 4);
    for _ in 0..10 {
        test.advance(&[1, 2]).unwrap();
    }
    assert_eq!(test.game().0, [10, 20, 0]);
}

#[test]
fn ls_g17_nothing_is_allocated_and_eight_steps_are_made_a_tick() {
    let mut test = SyncTest::new(Game::default(), 8, 7);
    let mut generator = Seed::from_number(1).generator(0);
    test.run(&mut generator, 100).unwrap();
    let before = allocations();
    test.run(&mut generator, 10_000).unwrap();
    assert_eq!(allocations() - before, 0);
}
