//! The stepper compared with a game that simulates each tick once, in order, from confirmed rows.

use super::*;
use crate::input::Origin;
use crate::input::Width;
use wire::{Generator, Seed};

const SHAPE: Shape = Shape {
    seats: 3,
    width: Width::bits::<8>(),
};

fn row(inputs: [u8; 3], origins: [Origin; 3]) -> Row {
    let mut row = Row::initial(3, SHAPE.width, &[0]);
    for (seat, (input, origin)) in (0..).map(Seat).zip(inputs.into_iter().zip(origins)) {
        row.set(seat, &[input], origin);
    }
    row
}

fn confirmed(inputs: [u8; 3]) -> Row {
    row(inputs, [Origin::Confirmed; 3])
}

/// The result depends on all arguments and on the order of steps.
fn step(state: u64, tick: Tick, row: &Row) -> u64 {
    let mut hasher = crate::checksum::StateHasher::new(wire::MatchId([1; 16]));
    hasher.u64(state);
    hasher.u32(tick.0);
    hasher.bytes(&row.values);
    for origin in &row.origins {
        hasher.u8(origin.code());
    }
    hasher.finish()
}

/// A game that executes the actions, and checks them.
struct Game {
    stepper: Stepper,
    window: u32,
    state: u64,
    /// Next tick of `state`.
    at: Tick,
    /// Slots for `window + 1` states; the oldest is overwritten.
    slots: Vec<(Tick, u64)>,
    /// Latest simulated state after each tick.
    after: Vec<u64>,
    /// First tick that is not final.
    settled: Tick,
    saves: u32,
    steps: u32,
    loads: u32,
}

impl Game {
    fn new(window: u8, policy: SavePolicy) -> Self {
        Self {
            stepper: Stepper::new(SHAPE, &[0], window, policy),
            window: window.into(),
            state: 0,
            at: Tick(0),
            slots: Vec::new(),
            after: Vec::new(),
            settled: Tick(0),
            saves: 0,
            steps: 0,
            loads: 0,
        }
    }

    /// Confirms rows of `log` up to `known` ticks, and runs to `target`.
    fn run(&mut self, log: &[Row], known: u32, target: Tick) {
        loop {
            self.confirm(log, known);
            let Some(next) = self.stepper.next(target) else {
                break;
            };
            self.act(next, target);
        }
        assert_eq!(self.at, self.stepper.at);
        let ahead = known + self.window;
        assert_eq!(self.at.0, target.0.min(ahead).max(self.at.0));
    }

    fn confirm(&mut self, log: &[Row], known: u32) {
        while self.stepper.wants_row() && self.stepper.end.0 < known {
            let tick = usize::try_from(self.stepper.end.0).unwrap();
            self.stepper.confirm(&log[tick]);
        }
    }

    fn act(&mut self, next: StepAction, target: Tick) {
        match next {
            StepAction::Save(tick) => {
                assert_eq!(tick, self.at);
                assert!(self.window > 0);
                self.saves += 1;
                if self.slots.len() > usize::try_from(self.window).unwrap() {
                    let oldest = self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.0);
                    let oldest = oldest.unwrap().0;
                    self.slots.swap_remove(oldest);
                }
                self.slots.push((tick, self.state));
            }
            StepAction::Load(tick) => {
                assert!(tick >= self.settled, "{tick} is final");
                assert!(tick < self.at);
                self.loads += 1;
                self.slots.retain(|slot| slot.0 <= tick);
                let slot = self.slots.iter().find(|slot| slot.0 == tick);
                self.state = slot.expect("among the newest saves").1;
                self.at = tick;
            }
            StepAction::Advance { tick, is_last } => {
                assert_eq!(tick, self.at);
                assert!(tick < target);
                assert_eq!(is_last, tick < self.stepper.end);
                assert!(tick.since(self.stepper.end) < self.window.max(1));
                self.steps += 1;
                self.state = step(self.state, tick, self.stepper.row());
                self.after.truncate(usize::try_from(tick.0).unwrap());
                self.after.push(self.state);
                self.at = tick.plus(1);
                if is_last {
                    assert_eq!(tick, self.settled, "final in order, each once");
                    self.settled = tick.plus(1);
                }
            }
            StepAction::Settled(tick) => {
                assert_eq!(tick, self.settled, "final in order, each once");
                assert!(tick < self.at && tick < self.stepper.end);
                self.settled = tick.plus(1);
            }
        }
    }

    fn assert_final(&self, log: &[Row]) {
        let mut state = 0;
        for (tick, row) in (0..self.settled.0).map(Tick).zip(log) {
            state = step(state, tick, row);
            assert_eq!(self.after[usize::try_from(tick.0).unwrap()], state);
        }
    }
}

/// A match in which each seat's input or origin changes with the given chance in a million.
fn any_log(generator: &mut Generator, ticks: u32, chance: u32) -> Vec<Row> {
    let mut row = confirmed([0; 3]);
    let mut log = Vec::new();
    for _ in 0..ticks {
        for seat in (0..3).map(Seat) {
            if generator.chance(chance) {
                let input = u8::try_from(generator.below(4)).unwrap();
                let origin = Origin::from_code(u8::try_from(generator.below(3)).unwrap());
                row.set(seat, &[input], origin);
            }
        }
        log.push(row.clone());
    }
    log
}

const POLICIES: [SavePolicy; 3] = [SavePolicy::Dense, SavePolicy::Sparse, SavePolicy::Auto];

#[test]
fn ls_2_final_states_stay_and_ls_3_equal_those_of_lockstep() {
    for seed in 0..300 {
        let mut generator = Seed::from_number(seed).generator(0);
        let window = u8::try_from(generator.below(33)).unwrap();
        let policy = POLICIES[usize::try_from(seed % 3).unwrap()];
        let chance = u32::try_from(generator.below(400_000)).unwrap();
        let log = any_log(&mut generator, 400, chance);
        let mut game = Game::new(window, policy);
        let (mut known, mut target) = (0_u32, 0_u32);
        while game.settled.0 < 400 {
            if generator.chance(100_000) {
                let cost = |generator: &mut Generator| Duration::from_nanos(generator.below(100));
                let (save, step) = (cost(&mut generator), cost(&mut generator));
                game.stepper.costs(save, step);
            }
            target = (target + u32::from(generator.chance(900_000))).min(401);
            // Confirmed rows arrive one by one, in bursts, or not at all for a while.
            if generator.chance(700_000) {
                let burst = u32::try_from(generator.between(1, 3)).unwrap();
                known = (known + burst).min(400);
            } else if generator.chance(20_000) {
                known = (known + 40).min(400);
            }
            // Predicted inputs may be right or wrong.
            for seat in (0..3).map(Seat) {
                let tick = known + u32::try_from(generator.below(70)).unwrap();
                let predicted = [u8::try_from(generator.below(4)).unwrap()];
                let truth = log.get(usize::try_from(tick).unwrap());
                let bits = match truth {
                    Some(row) if generator.chance(800_000) => row.value(seat),
                    Some(_) | None => &predicted,
                };
                game.stepper.predict_input(seat, Tick(tick), bits);
            }
            let target = target.max(known.min(400));
            game.run(&log, known, Tick(target));
            if known == 400 && target >= 400 {
                // The last ticks become final once a step beyond them is due.
                game.run(&log, known, Tick(400));
                if game.settled.0 < 400 {
                    assert!(game.at.0 > 400, "{window} {policy:?}");
                    break;
                }
            }
        }
        game.assert_final(&log);
        assert!(game.settled.0 > 400 - 65, "{}", game.settled);
        if window == 0 {
            assert_eq!((game.saves, game.loads, game.steps), (0, 0, 400));
        }
    }
}

#[test]
fn a_prediction_repeats_known_inputs_in_the_form_of_a_closed_tick() {
    let mut stepper = Stepper::new(SHAPE, &[0], 8, SavePolicy::Dense);
    let origins = [Origin::Confirmed, Origin::Substituted, Origin::Absent];
    stepper.confirm(&row([5, 6, 0], origins));
    stepper.predict_input(Seat(0), Tick(1), &[7]);
    stepper.predict_input(Seat(1), Tick(3), &[9]);
    let mut rows = Vec::new();
    while let Some(next) = stepper.next(Tick(5)) {
        if let StepAction::Advance { tick, is_last } = next {
            assert_eq!(is_last, tick == Tick(0));
            rows.push(stepper.row().clone());
        }
    }
    let predicted_inputs = [Origin::Confirmed, Origin::Confirmed, Origin::Absent];
    let expected = [
        row([5, 6, 0], origins),
        row([7, 6, 0], origins),
        row([7, 6, 0], origins),
        row([7, 9, 0], predicted_inputs),
        row([7, 9, 0], predicted_inputs),
    ];
    assert_eq!(rows, expected);
}

/// The stepper's actions until it waits.
fn asked(stepper: &mut Stepper, target: u32) -> Vec<StepAction> {
    core::iter::from_fn(|| stepper.next(Tick(target))).collect()
}

const fn last(tick: u32) -> StepAction {
    StepAction::Advance {
        tick: Tick(tick),
        is_last: true,
    }
}

const fn predicted(tick: u32) -> StepAction {
    StepAction::Advance {
        tick: Tick(tick),
        is_last: false,
    }
}

#[test]
fn a_wrong_prediction_is_returned_and_a_right_one_accepted() {
    for wrong in [
        confirmed([0, 1, 0]),
        row(
            [0; 3],
            [Origin::Confirmed, Origin::Substituted, Origin::Confirmed],
        ),
    ] {
        let mut stepper = Stepper::new(SHAPE, &[0], 8, SavePolicy::Dense);
        stepper.confirm(&confirmed([0; 3]));
        let first = [
            last(0),
            StepAction::Save(Tick(1)),
            predicted(1),
            StepAction::Save(Tick(2)),
            predicted(2),
        ];
        assert_eq!(asked(&mut stepper, 3), first);
        stepper.confirm(&confirmed([0; 3]));
        assert_eq!(asked(&mut stepper, 3), [StepAction::Settled(Tick(1))]);
        stepper.confirm(&wrong);
        let back = [
            StepAction::Load(Tick(2)),
            last(2),
            StepAction::Save(Tick(3)),
            predicted(3),
        ];
        assert_eq!(asked(&mut stepper, 4), back);
    }
}

#[test]
fn a_late_prediction_rolls_back_once() {
    let mut stepper = Stepper::new(SHAPE, &[0], 8, SavePolicy::Dense);
    stepper.confirm(&confirmed([0; 3]));
    asked(&mut stepper, 5);
    stepper.predict_input(Seat(2), Tick(3), &[0]);
    assert_eq!(asked(&mut stepper, 5), [], "as it was simulated");
    stepper.predict_input(Seat(2), Tick(4), &[8]);
    assert_eq!(
        asked(&mut stepper, 5),
        [StepAction::Load(Tick(4)), predicted(4)]
    );
    assert_eq!(stepper.row().value(Seat(2)), [8]);
    stepper.predict_input(Seat(2), Tick(4), &[9]);
    assert_eq!(asked(&mut stepper, 5), [], "the first word counts");
    stepper.predict_input(Seat(2), Tick(0), &[9]);
    stepper.predict_input(Seat(2), Tick(1 + PREDICTED_MAX), &[9]);
    stepper.predict_input(Seat(9), Tick(4), &[9]);
    assert_eq!(asked(&mut stepper, 5), [], "closed, too far, nobody");
}

#[test]
fn without_a_window_it_is_lockstep() {
    let mut stepper = Stepper::new(SHAPE, &[0], 0, SavePolicy::Auto);
    assert_eq!(asked(&mut stepper, 9), []);
    for tick in 0..5 {
        stepper.predict_input(Seat(0), Tick(tick + 1), &[3]);
        let inputs = confirmed([u8::try_from(tick).unwrap(); 3]);
        stepper.confirm(&inputs);
        assert_eq!(asked(&mut stepper, tick), [], "not due");
        assert_eq!(asked(&mut stepper, 9), [last(tick)]);
        assert_eq!(stepper.row(), &inputs);
    }
}

#[test]
fn predictions_are_bounded_by_the_window() {
    for window in [1, 8, 32] {
        for policy in POLICIES {
            let mut game = Game::new(window, policy);
            let log = vec![confirmed([1; 3]); 100];
            game.run(&log, 10, Tick(90));
            assert_eq!(game.at.0, 10 + u32::from(window));
        }
    }
}

/// Cost of a match in thousandths of a step: 6,000 ticks, each confirmed `late` ticks after it was
/// simulated; one in `1_000_000 / chance` was mispredicted.
fn cost(policy: SavePolicy, save_thousandths: u64, late: u32, chance: u32) -> u64 {
    let mut generator = Seed::from_number(u64::from(chance) + 7).generator(0);
    let mut game = Game::new(8, policy);
    let mut value = 0;
    let log: Vec<_> = (0..6_100)
        .map(|_| {
            if generator.chance(chance) {
                value ^= 1;
            }
            confirmed([0, value, 0])
        })
        .collect();
    game.stepper.costs(
        Duration::from_micros(save_thousandths),
        Duration::from_millis(1),
    );
    for tick in 0..6_000_u32 {
        game.run(&log, tick.saturating_sub(late), Tick(tick));
    }
    // The first step of each tick is not a rollback cost.
    let again = u64::from(game.steps - game.at.0);
    u64::from(game.saves) * save_thousandths + again * 1_000
}

#[test]
fn ls_g18_auto_costs_at_most_a_twentieth_more_than_the_better_policy() {
    for (late, chance) in [
        (2, 100_000),
        (3, 10_000),
        (3, 100_000),
        (3, 500_000),
        (3, 1_000_000),
        (6, 50_000),
        (6, 250_000),
        (6, 900_000),
        (7, 100_000),
    ] {
        for save in [100, 200, 400, 700, 1_000, 1_500, 2_500, 5_000, 10_000] {
            let [dense, sparse, auto] = POLICIES.map(|policy| cost(policy, save, late, chance));
            let better = dense.min(sparse);
            eprintln!("late {late}, wrong {chance}, save {save}: {dense} {sparse} {auto}");
            assert!(
                auto * 100 <= better * 105,
                "late {late}, wrong {chance}, save {save}: {auto} for {dense} or {sparse}"
            );
        }
    }
}
