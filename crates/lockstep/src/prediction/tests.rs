#![expect(clippy::arithmetic_side_effects, reason = "numbers of tests are small")]
#![expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "steps take inputs of every size alike"
)]

use proptest::prelude::*;

use super::*;

/// Depends on the order of inputs, to detect missing, repeated and swapped ones.
fn step(state: &mut u64, input: &u8) {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(u64::from(*input) + 1);
}

fn after(state: u64, inputs: &[u8]) -> u64 {
    inputs.iter().fold(state, |mut state, input| {
        step(&mut state, input);
        state
    })
}

#[test]
fn b1_an_input_shows_at_once_and_a_right_prediction_is_not_corrected() {
    let mut prediction = Prediction::new(7, 16);
    for (index, number) in (0..10_u8).zip(1..) {
        assert_eq!(prediction.predict(index, step), Ok(number));
    }
    assert_eq!(
        *prediction.state(),
        after(7, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    );
    for number in 1..=10_u8 {
        let inputs: Vec<u8> = (0..number).collect();
        let authoritative = after(7, &inputs);
        assert_eq!(
            prediction.reconcile(number.into(), &authoritative, step),
            None
        );
        assert_eq!(*prediction.acknowledged(), authoritative);
    }
    assert_eq!(prediction.unacknowledged().count(), 0);
    let stats = prediction.stats();
    assert_eq!(
        (stats.states, stats.corrections, stats.inputs_again),
        (10, 0, 0)
    );
}

#[test]
fn b1_a_misprediction_is_corrected_with_unprocessed_inputs() {
    let mut prediction = Prediction::new(0, 16);
    for input in 1..=5 {
        prediction.predict(input, step).unwrap();
    }
    let before = *prediction.state();
    // Another player pushed the character between inputs 2 and 3.
    let correction = prediction.reconcile(2, &99, step).unwrap();
    let expected = after(99, &[3, 4, 5]);
    assert_eq!(
        (correction.number, *correction.before, *correction.after),
        (5, before, expected)
    );
    assert_eq!(*prediction.state(), expected);
    let waiting: Vec<_> = prediction.unacknowledged().collect();
    assert_eq!(waiting, [(5, &5), (4, &4), (3, &3)]);
    // The corrected state is the base of later predictions.
    assert_eq!(prediction.reconcile(3, &after(99, &[3]), step), None);
    // The server lost input 4.
    let lost = after(99, &[3, 5]);
    let correction = prediction.reconcile(5, &lost, step).unwrap();
    assert_eq!((*correction.before, *correction.after), (expected, lost));
    // A push without any input.
    assert!(prediction.reconcile(5, &12, step).is_some());
    assert_eq!(prediction.reconcile(5, &12, step), None);
    let stats = prediction.stats();
    assert_eq!(
        (stats.states, stats.corrections, stats.inputs_again),
        (5, 3, 3)
    );
}

#[test]
fn stale_and_unknown_numbers_are_dropped_and_counted() {
    let mut prediction = Prediction::new(0, 16);
    // Before the first input a state is accepted, but no input number is.
    assert!(prediction.reconcile(0, &1, step).is_some());
    assert_eq!(prediction.reconcile(1, &2, step), None);
    assert_eq!(prediction.reconcile(u16::MAX, &2, step), None);
    for input in 1..=4 {
        prediction.predict(input, step).unwrap();
    }
    assert!(prediction.reconcile(3, &9, step).is_some());
    let state = *prediction.state();
    assert_eq!(prediction.reconcile(2, &8, step), None);
    assert_eq!(prediction.reconcile(5, &8, step), None);
    assert_eq!(*prediction.state(), state);
    let stats = prediction.stats();
    assert_eq!((stats.dropped_late, stats.dropped_unknown), (1, 3));
}

#[test]
fn inputs_beyond_the_history_are_returned_and_counted() {
    for (asked, held) in [(0, 1), (5, 5), (1_024, 1_024), (u16::MAX, 1_024)] {
        let mut prediction = Prediction::new(0, asked);
        for _ in 0..held {
            prediction.predict(1, step).unwrap();
        }
        let (state, slots) = (*prediction.state(), prediction.steps.capacity());
        for _ in 0..3 {
            assert_eq!(prediction.predict(7, step), Err(HistoryFull(7)));
        }
        assert_eq!(*prediction.state(), state);
        assert_eq!(
            (prediction.stats().inputs, prediction.stats().refused),
            (held, 3)
        );
        // The most steps that a state can cost.
        let mut steps = 0;
        prediction.reconcile(0, &5, |state, input| {
            steps += 1;
            step(state, input);
        });
        assert_eq!(steps, held);
        // An acknowledgement lets prediction continue, without larger buffers.
        prediction.reconcile(u16::try_from(held).unwrap(), &5, step);
        assert!(prediction.predict(7, step).is_ok());
        assert_eq!(prediction.steps.capacity(), slots);
    }
}

#[test]
fn numbers_may_wrap() {
    let mut prediction = Prediction::new(0, 64);
    let mut state = 0;
    let mut authoritative = std::collections::VecDeque::new();
    for count in 0..200_000_u32 {
        let input = u8::try_from(count % 251).unwrap();
        let number = prediction.predict(input, step).unwrap();
        assert_eq!(u32::from(number), (count + 1) % 65_536);
        step(&mut state, &input);
        authoritative.push_back((number, state));
        if authoritative.len() == 64 {
            let (number, state) = authoritative.pop_front().unwrap();
            assert_eq!(prediction.reconcile(number, &state, step), None);
        }
    }
    assert_eq!(
        (prediction.stats().corrections, prediction.stats().refused),
        (0, 0)
    );
    assert_eq!(*prediction.state(), state);
}

/// Keeps all inputs, and simulates every step again each time.
struct Model {
    inputs: Vec<u8>,
    acknowledged: usize,
    base: u64,
}

impl Model {
    fn state(&self) -> u64 {
        after(self.base, &self.inputs[self.acknowledged..])
    }
}

proptest! {
    #[test]
    fn b1_agrees_with_a_model_that_repeats_every_step(
        history in 1_u16..9,
        acts in proptest::collection::vec((any::<bool>(), any::<u8>(), 0_u16..12, 0_u64..3), 0..300),
    ) {
        let mut prediction = Prediction::new(1, history);
        let mut model = Model { inputs: Vec::new(), acknowledged: 0, base: 1 };
        for (is_input, input, back, push) in acts {
            let newest = model.inputs.len();
            if is_input {
                let is_full = newest - model.acknowledged >= usize::from(history);
                prop_assert_eq!(prediction.predict(input, step).is_err(), is_full);
                if !is_full {
                    model.inputs.push(input);
                }
            } else {
                // The number is one too many, already acknowledged, or in between; the state
                // changed or not.
                let number = u16::try_from(newest).unwrap().wrapping_add(1).wrapping_sub(back);
                let known = usize::from(number) <= newest && usize::from(number) >= model.acknowledged;
                let to = if known { usize::from(number) } else { newest };
                let thought = after(model.base, &model.inputs[model.acknowledged..to]);
                let authoritative = thought.wrapping_add(push);
                let old = model.state();
                let found = prediction.reconcile(number, &authoritative, step).map(|it| (*it.before, *it.after));
                if known {
                    model.acknowledged = to;
                    model.base = authoritative;
                }
                let expected = (known && push > 0).then(|| (old, model.state()));
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(*prediction.state(), model.state());
            prop_assert_eq!(*prediction.acknowledged(), model.base);
            let waiting: Vec<_> = prediction.unacknowledged().map(|(_, input)| *input).collect();
            let expected = model.inputs[model.acknowledged..].iter().rev().copied();
            prop_assert!(waiting.into_iter().eq(expected));
        }
    }
}
