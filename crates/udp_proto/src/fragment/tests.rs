use std::collections::BTreeMap;

use super::*;
use proptest::prelude::*;

fn fragment(index: u16, count: u16, data: &[u8]) -> Result<Fragment<'_>, FragmentError> {
    Fragment::new(Position { index, count }, data, 4 * FRAGMENT_LEN + 10)
}

fn taken(reassembler: &mut Reassembler, key: Key) -> Vec<u8> {
    let mut out = Vec::new();
    reassembler.take(key, &mut |bytes| out.extend_from_slice(bytes));
    out
}

#[test]
fn refuses_headers_and_lengths_that_make_no_message() {
    let full = [7; FRAGMENT_LEN];
    for (index, count) in [(0, 0), (0, 1), (0, 6), (5, u16::MAX)] {
        assert_eq!(
            fragment(index, count, &full).unwrap_err(),
            FragmentError::Count(count)
        );
    }
    assert_eq!(
        fragment(2, 2, &full).unwrap_err(),
        FragmentError::Index { index: 2, count: 2 }
    );
    for (index, count, len) in [
        (0, 2, 0),
        (0, 2, FRAGMENT_LEN - 1),
        (0, 2, FRAGMENT_LEN + 1),
        (1, 2, 0),
        (1, 2, FRAGMENT_LEN + 1),
        // The channel's longest message has 10 bytes in its fifth fragment.
        (4, 5, 11),
    ] {
        let data = vec![7; len];
        assert_eq!(
            fragment(index, count, &data).unwrap_err(),
            FragmentError::Length(len)
        );
    }
    assert!(fragment(0, 2, &full).is_ok());
    assert!(fragment(1, 2, &full[..1]).is_ok());
    assert!(fragment(4, 5, &full[..10]).is_ok());
}

#[test]
fn a_duplicate_is_ignored_and_a_contradiction_refused() {
    let full = [7; FRAGMENT_LEN];
    let mut reassembler = Reassembler::new();
    let key = reassembler.begin(3);
    let last = fragment(2, 3, &full[..9]).unwrap();
    assert_eq!(reassembler.admit(key, &last), Ok(Admission::New));
    assert!(!reassembler.insert(key, &last));
    assert_eq!(reassembler.admit(key, &last), Ok(Admission::Repeated));
    assert!(!reassembler.insert(key, &last));
    assert_eq!(reassembler.held_len(key), 9);
    for other in [fragment(2, 3, &full[..8]), fragment(1, 2, &full[..9])] {
        assert_eq!(
            reassembler.admit(key, &other.unwrap()),
            Err(FragmentError::Contradiction)
        );
    }
    assert!(!reassembler.insert(key, &fragment(0, 3, &full).unwrap()));
    assert!(reassembler.insert(key, &fragment(1, 3, &full).unwrap()));
    assert_eq!(taken(&mut reassembler, key), vec![7; 2 * FRAGMENT_LEN + 9]);
}

#[test]
fn memory_follows_received_and_not_announced_bytes() {
    let mut reassembler = Reassembler::new();
    let announced = Position {
        index: 7_489,
        count: 7_490,
    };
    let last = Fragment::new(announced, &[1], 8 << 20).unwrap();
    for _ in 0..8 {
        let key = reassembler.begin(7_490);
        reassembler.insert(key, &last);
        assert_eq!(reassembler.cost(key), 1 + 64 + 936);
    }
    assert!(reassembler.memory() < 3_000, "{}", reassembler.memory());
}

#[test]
fn a_reused_slot_frees_the_list_of_a_long_message() {
    let mut reassembler = Reassembler::new();
    let data = [1; FRAGMENT_LEN];
    let keys: Vec<Key> = (0..16).map(|_| reassembler.begin(200)).collect();
    for key in keys {
        for index in 0..200 {
            let position = Position { index, count: 200 };
            let fragment = Fragment::new(position, &data, 200 * FRAGMENT_LEN).unwrap();
            reassembler.insert(key, &fragment);
        }
        assert!(reassembler.is_complete(key));
        reassembler.discard(key);
    }
    let one_message = 200 * FRAGMENT_LEN;
    assert!(
        reassembler.memory() < one_message * 2,
        "{}",
        reassembler.memory()
    );
}

/// A fragment that a peer may send, as the reassembler sees it.
#[derive(Clone, Debug)]
struct Step {
    message: usize,
    count: u16,
    index: u16,
    tail_len: usize,
    drops: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0_usize..4, 2_u16..5, 0_u16..5, 1_usize..4, 0_u8..20).prop_map(
        |(message, count, index, tail_len, drops)| Step {
            message,
            // Mostly the count that belongs to the message, so that some messages complete.
            count: if drops == 1 {
                count
            } else {
                2 + u16::from(message > 1)
            },
            index,
            tail_len: if drops == 2 { tail_len } else { 2 },
            drops: drops == 0,
        },
    );
    prop::collection::vec(step, 0..120)
}

/// A message as the model keeps it: name, count, fragments.
type Model = (Key, u16, BTreeMap<u16, Vec<u8>>);

proptest! {
    #[test]
    fn twp_m5_agrees_with_a_map_and_fragments_of_different_ids_never_mix(steps in steps()) {
        let mut reassembler = Reassembler::new();
        let mut model: BTreeMap<usize, Model> = BTreeMap::new();
        for (number, step) in (0_u8..).zip(steps) {
            if step.drops {
                if let Some((key, ..)) = model.remove(&step.message) {
                    reassembler.discard(key);
                }
                continue;
            }
            let last = step.index + 1 == step.count;
            let data = vec![number; if last { step.tail_len } else { FRAGMENT_LEN }];
            let Ok(fragment) = fragment(step.index, step.count, &data) else { continue };
            let (key, count, pieces) = model.entry(step.message).or_insert_with(
                || (reassembler.begin(step.count), step.count, BTreeMap::new()));
            let expected = match pieces.get(&step.index) {
                _ if *count != step.count => Err(FragmentError::Contradiction),
                Some(held) if held.len() != data.len() => Err(FragmentError::Contradiction),
                Some(_) => Ok(Admission::Repeated),
                None => Ok(Admission::New),
            };
            prop_assert_eq!(reassembler.admit(*key, &fragment), expected);
            if expected == Ok(Admission::New) {
                pieces.insert(step.index, data.clone());
            }
            let complete = reassembler.insert(*key, &fragment);
            prop_assert_eq!(complete, pieces.len() == usize::from(*count));
            let held: usize = pieces.values().map(Vec::len).sum();
            prop_assert_eq!(reassembler.held_len(*key), held);
            prop_assert_eq!(reassembler.cost(*key), held + 64);
            if complete {
                let (key, _, pieces) = model.remove(&step.message).unwrap();
                let whole: Vec<u8> = pieces.into_values().flatten().collect();
                prop_assert_eq!(taken(&mut reassembler, key), whole);
            }
            let held: usize = model.values().map(|(key, ..)| reassembler.held_len(*key)).sum();
            // 60 bytes hold 56, and a string ends inside a block.
            prop_assert!(reassembler.full.held_bytes() + reassembler.short.held_bytes() <= held / 56 * 60 + 60 * 4);
        }
    }
}

#[test]
fn returns_stored_fragments_and_reuses_released_memory() {
    let mut blocks = Blocks::<56>::new();
    let strings: Vec<Vec<u8>> = [0_u8, 1, 55, 56, 57, 112, 200]
        .iter()
        .map(|len| (0..*len).collect())
        .collect();
    let mut memory = 0;
    for turn in 0..50 {
        let firsts: Vec<u32> = strings.iter().map(|string| blocks.store(string)).collect();
        for (first, string) in firsts.iter().zip(&strings) {
            let mut out = Vec::new();
            blocks.read(*first, string.len(), &mut |bytes| {
                out.extend_from_slice(bytes);
            });
            assert_eq!(&out, string);
        }
        for first in firsts {
            blocks.release(first);
        }
        assert_eq!(blocks.held, 0);
        assert!(turn == 0 || memory == blocks.memory());
        memory = blocks.memory();
    }
}
