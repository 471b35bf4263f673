use super::super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Act {
    Push(u8),
    Ack(u32),
    Closed(u32),
    Jump(u32),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => any::<u8>().prop_map(Act::Push),
        3 => (0_u32..90).prop_map(Act::Ack),
        2 => (0_u32..90).prop_map(Act::Closed),
        1 => (1_u32..200).prop_map(Act::Jump),
    ];
    prop::collection::vec(act, 1..300)
}

proptest! {
    /// Compares the history with a queue of `(tick, input)`.
    #[test]
    fn l5_an_ack_trims_history_exactly(acts in acts()) {
        let mut history = History::new(1);
        let mut model: VecDeque<(u32, u8)> = VecDeque::new();
        let mut reference: Option<(u32, u8)> = None;
        let mut next = 0_u32;
        for act in acts {
            match act {
                Act::Push(value) => {
                    history.push(Tick(next), &[value]);
                    if model.back().is_some_and(|&(tick, _)| tick + 1 != next) {
                        model.clear();
                    }
                    if model.len() == 64 {
                        model.pop_front();
                    }
                    model.push_back((next, value));
                    next += 1;
                }
                Act::Ack(back) => {
                    // Acknowledgements are late and repeated, and never for inputs that were
                    // not sent.
                    let Some(tick) = next.checked_sub(back + 1) else { continue };
                    history.on_ack(Tick(tick));
                    if reference.is_none_or(|(known, _)| known < tick) {
                        if let Some(&held) = model.iter().find(|&&(held, _)| held == tick) {
                            reference = Some(held);
                        }
                        model.retain(|&(held, _)| held > tick);
                    }
                }
                Act::Closed(back) => {
                    let tick = next.saturating_sub(back);
                    history.forget_before(Tick(tick));
                    model.retain(|&(held, _)| held >= tick);
                }
                Act::Jump(by) => next += by,
            }
            prop_assert_eq!(history.inputs().len(), model.len());
            let inputs: Vec<u8> = history.inputs().map(|input| input[0]).collect();
            let expected: Vec<u8> = model.iter().map(|&(_, value)| value).collect();
            prop_assert_eq!(inputs, expected);
            if let Some(&(first, _)) = model.front() {
                prop_assert_eq!(history.first, Tick(first));
                let before = reference.filter(|&(tick, _)| tick + 1 == first);
                prop_assert_eq!(history.reference().map(|value| value[0]), before.map(|(_, value)| value));
            }
        }
    }
}
