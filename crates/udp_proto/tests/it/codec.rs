//! Typed messages: round trips, and bounds for hostile input.

use core::fmt::Debug;
use std::collections::{BTreeMap, BTreeSet, LinkedList};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
#[cfg(feature = "bincode")]
use udp_proto::codec::Bincode;
use udp_proto::codec::{
    Codec, DecodeError, DispatchError, EncodeError, Limits, Postcard, Registry, TakenId, Typed,
};
use udp_proto::{Config, SessionId};
use wire::Seed;

use crate::alloc::peak;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Step {
    tick: u32,
    moves: Vec<(i16, i16)>,
    name: String,
    seen: BTreeMap<u8, Option<Box<Self>>>,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    Idle,
    Jump(f32),
    Throw { at: [u8; 3], far: bool },
    Pair(u128, char),
}

impl Typed for Step {
    const ID: u16 = 0x0203;
    const VERSION: u16 = 1;
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Chat(String);

impl Typed for Chat {
    const ID: u16 = 9;
    const VERSION: u16 = 2;
}

/// Has the id of [`Chat`].
#[derive(Debug, Serialize, Deserialize)]
struct DuplicateId;

impl Typed for DuplicateId {
    const ID: u16 = Chat::ID;
    const VERSION: u16 = 1;
}

fn step() -> Step {
    let inner = Step {
        tick: 7,
        moves: vec![(1, -1), (i16::MAX, i16::MIN)],
        name: "ä".to_owned(),
        seen: BTreeMap::new(),
        kind: Kind::Throw {
            at: [1, 2, 3],
            far: true,
        },
    };
    Step {
        seen: BTreeMap::from([(0, None), (200, Some(Box::new(inner.clone())))]),
        kind: Kind::Pair(u128::MAX, '\u{1f3ae}'),
        ..inner
    }
}

#[derive(Debug, Default, PartialEq)]
struct Handled {
    steps: Vec<Step>,
    chats: Vec<Chat>,
}

fn registry<C: Codec>() -> Registry<C, Handled> {
    Registry::new()
        .takes(|handled: &mut Handled, _, step: Step| handled.steps.push(step))
        .unwrap()
        .takes(|handled: &mut Handled, _, chat: Chat| handled.chats.push(chat))
        .unwrap()
}

fn round_trip<C: Codec>() {
    let registry = registry::<C>();
    let (mut handled, mut bytes) = (Handled::default(), vec![1, 2, 3]);
    let from = SessionId::default();
    for kind in [Kind::Idle, Kind::Jump(0.5), step().kind] {
        let sent_text = Step { kind, ..step() };
        registry.encode(&sent_text, &mut bytes).unwrap();
        assert_eq!(bytes[..2], [2, 3]);
        assert_eq!(registry.dispatch(&mut handled, from, &bytes), Ok(Step::ID));
        assert_eq!(handled.steps.pop(), Some(sent_text));
    }
    registry.encode(&Chat("hi".to_owned()), &mut bytes).unwrap();
    assert_eq!(registry.dispatch(&mut handled, from, &bytes), Ok(Chat::ID));
    assert_eq!(handled.chats, [Chat("hi".to_owned())]);

    // Each truncation and each extra byte is rejected and reaches no handler.
    registry.encode(&step(), &mut bytes).unwrap();
    let mut handled = Handled::default();
    for len in 0..bytes.len() {
        let refused = registry.dispatch(&mut handled, from, &bytes[..len]);
        assert!(refused.is_err(), "{len}");
    }
    bytes.push(0);
    let error = DecodeError::Trailing;
    assert_eq!(
        registry.dispatch(&mut handled, from, &bytes),
        Err(DispatchError::Undecodable {
            id: Step::ID,
            error
        })
    );
    assert_eq!(handled, Handled::default());
}

#[test]
fn u22_messages_round_trip_and_are_dispatched_by_id() {
    round_trip::<Postcard>();
    #[cfg(feature = "bincode")]
    round_trip::<Bincode>();
}

#[test]
fn u22_ids_are_explicit_and_unique_and_unknown_ones_are_dropped() {
    let twice = registry::<Postcard>().takes(|_, _, _: DuplicateId| {});
    assert_eq!(twice.err(), Some(TakenId(9)));
    let twice = registry::<Postcard>().sends::<Chat>();
    assert_eq!(twice.err(), Some(TakenId(9)));

    let sender = Registry::<Postcard, Handled>::new()
        .sends::<Chat>()
        .unwrap();
    let (mut handled, mut bytes) = (Handled::default(), Vec::new());
    sender.encode(&Chat("hi".to_owned()), &mut bytes).unwrap();
    let mut dispatch =
        |message: &[u8]| sender.dispatch(&mut handled, SessionId::default(), message);
    assert_eq!(dispatch(&bytes), Err(DispatchError::NotTaken(9)));
    assert_eq!(dispatch(&[2, 3]), Err(DispatchError::UnknownId(0x0203)));
    assert_eq!(dispatch(&[2]), Err(DispatchError::NoId));
    assert_eq!(
        sender.encode(&step(), &mut bytes),
        Err(EncodeError::Unregistered(0x0203))
    );
    // Whether an end sends or receives a type is local; all else must match.
    let taker = Registry::<Postcard, Handled>::new()
        .takes(|handled: &mut Handled, _, chat: Chat| handled.chats.push(chat))
        .unwrap();
    assert_eq!(sender.catalogue(), taker.catalogue());
    assert_ne!(sender.catalogue(), registry::<Postcard>().catalogue());
    assert_ne!(sender.catalogue(), Config::default().messages);
    #[cfg(feature = "bincode")]
    assert_ne!(
        registry::<Bincode>().catalogue(),
        registry::<Postcard>().catalogue()
    );
}

/// A type that an application may use.
#[expect(clippy::disallowed_types, reason = "nothing asks for its order")]
type Table<K, V> = std::collections::HashMap<K, V>;

/// One byte on the wire and 400 in memory.
type Large = Option<[[u64; 10]; 5]>;

#[derive(Debug, Serialize, Deserialize)]
enum Tree {
    Leaf,
    Fork(Box<Self>),
}

/// Decodes `bytes` as a `T`; returns the outcome and the peak memory.
fn decode<C: Codec, T: DeserializeOwned>(
    bytes: &[u8],
    limits: Limits,
) -> (Result<(), DecodeError>, i64) {
    let mut outcome = Ok(());
    let held = peak(|| outcome = C::decode::<T>(bytes, limits).map(drop));
    (outcome, held)
}

fn limits(memory_max: usize, depth_max: u16) -> Limits {
    let mut limits = Limits::default();
    limits.memory_max = memory_max;
    limits.depth_max = depth_max;
    limits
}

/// A length of nearly 2^32, in the format of both codecs, followed by `count` bytes of `fill`.
fn claim<C: Codec>(fill: u8, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    if C::CODE == Postcard::CODE {
        bytes.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    } else {
        bytes.extend_from_slice(&[252, 0xff, 0xff, 0xff, 0xff]);
    }
    bytes.resize(bytes.len() + count, fill);
    bytes
}

fn bounded<C: Codec>() {
    const MEMORY: usize = 60_000;
    let usual = limits(MEMORY, 128);
    let allowed = i64::try_from(3 * MEMORY).unwrap();
    let short = claim::<C>(0, 40);
    let check = |what: &str, (outcome, held): (Result<(), DecodeError>, i64)| {
        let known = [DecodeError::Malformed, DecodeError::TooLarge];
        assert!(known.contains(&outcome.unwrap_err()), "{what}: {outcome:?}");
        assert!(held <= allowed, "{what} holds {held} bytes");
    };
    // A claimed length is never allocated up front, whatever the element type.
    check("text", decode::<C, String>(&short, usual));
    check("bytes", decode::<C, Vec<u8>>(&short, usual));
    check("fat", decode::<C, Vec<Large>>(&short, usual));
    check("map", decode::<C, BTreeMap<u32, Large>>(&short, usual));
    check("lists", decode::<C, Vec<Vec<Vec<u8>>>>(&short, usual));
    // Values that are short on the wire are charged by their size in memory.
    let long = claim::<C>(0, 30_000);
    assert_eq!(
        decode::<C, Vec<Large>>(&long, usual).0,
        Err(DecodeError::TooLarge)
    );
    check("many fat", decode::<C, Vec<Large>>(&long, usual));
    check("many boxed", decode::<C, Vec<Box<Large>>>(&long, usual));
    // A map of one entry has a node for eleven, and so has a set.
    let mut maps = Vec::new();
    C::encode(
        &vec![BTreeMap::from([(0_u8, None::<u8>)]); 5_000],
        &mut maps,
    )
    .unwrap();
    check("maps", decode::<C, Vec<BTreeMap<u8, Large>>>(&maps, usual));
    check("tables", decode::<C, Vec<Table<u8, Large>>>(&maps, usual));
    let mut sets = Vec::new();
    C::encode(&vec![vec![None::<u8>]; 5_000], &mut sets).unwrap();
    check("sets", decode::<C, Vec<BTreeSet<Large>>>(&sets, usual));
    check("lists of one", decode::<C, Vec<Vec<Large>>>(&sets, usual));
    // In a map of many entries more than half of the node space may be empty.
    let mut map = Vec::new();
    let entries: BTreeMap<u32, Option<u8>> = (0..20_000).map(|key| (key, None)).collect();
    C::encode(&entries, &mut map).unwrap();
    check("a map", decode::<C, BTreeMap<u32, Large>>(&map, usual));
    check(
        "a small map",
        decode::<C, BTreeMap<u32, Option<u8>>>(&map, usual),
    );
    check("a table", decode::<C, Table<u32, Large>>(&map, usual));
    check(
        "a small table",
        decode::<C, Table<u32, Option<u8>>>(&map, usual),
    );

    // A list's links are not counted, as `Limits` states: two pointers and a slot for each value.
    let (outcome, held) = decode::<C, LinkedList<u8>>(&claim::<C>(0, 2 * MEMORY), usual);
    assert_eq!(outcome, Err(DecodeError::TooLarge));
    assert!(
        held > allowed && held <= i64::try_from(24 * MEMORY).unwrap(),
        "{held}"
    );

    // Decoding zero-sized values ends early, too: 4,000,000,000 of them would take long.
    check("nothing", decode::<C, Vec<()>>(&short, usual));

    // A list that fits is accepted; a slightly longer one is not.
    let mut bytes = Vec::new();
    C::encode(&vec![5_u64; 1_000], &mut bytes).unwrap();
    // The first counts four times: a short list allocates room for four.
    let needed = 1_003 * 8 + 1_000 + size_of::<Vec<u64>>();
    assert_eq!(decode::<C, Vec<u64>>(&bytes, limits(needed, 3)).0, Ok(()));
    assert_eq!(
        decode::<C, Vec<u64>>(&bytes, limits(needed - 1, 3)).0,
        Err(DecodeError::TooLarge)
    );
    bytes.clear();
    C::encode(&"text", &mut bytes).unwrap();
    let needed = 4 + size_of::<String>();
    assert_eq!(decode::<C, String>(&bytes, limits(needed, 1)).0, Ok(()));
    assert_eq!(
        decode::<C, String>(&bytes, limits(needed - 1, 1)).0,
        Err(DecodeError::TooLarge)
    );
}

#[test]
fn u22_memory_and_work_stay_within_the_limits_for_any_message() {
    bounded::<Postcard>();
    #[cfg(feature = "bincode")]
    bounded::<Bincode>();
}

#[test]
fn u22_a_message_of_a_million_forks_ends_at_the_depth_limit() {
    let forks = vec![1; 1_000_000];
    assert_eq!(
        decode::<Postcard, Tree>(&forks, Limits::default()).0,
        Err(DecodeError::TooDeep)
    );
    #[cfg(feature = "bincode")]
    assert_eq!(
        decode::<Bincode<16_000_000>, Tree>(&forks, Limits::default()).0,
        Err(DecodeError::TooDeep)
    );
    let mut few = Tree::Leaf;
    for _ in 0..30 {
        few = Tree::Fork(Box::new(few));
    }
    let mut bytes = Vec::new();
    Postcard::encode(&few, &mut bytes).unwrap();
    let (outcome, _) = decode::<Postcard, Tree>(&bytes, Limits::default());
    assert_eq!(outcome, Ok(()));
}

#[cfg(feature = "bincode")]
#[test]
fn u22_bincode_enforces_its_compile_time_limit() {
    let mut bytes = Vec::new();
    Bincode::<64>::encode(&vec![7_u8; 100], &mut bytes).unwrap();
    let of = |limit| limit;
    let generous = limits(of(1 << 30), 128);
    assert_eq!(
        decode::<Bincode<64>, Vec<u8>>(&bytes, generous).0,
        Err(DecodeError::TooLarge)
    );
    assert_eq!(decode::<Bincode<512>, Vec<u8>>(&bytes, generous).0, Ok(()));
}

fn random<C: Codec, T: DeserializeOwned + Serialize + Debug>(seed: u64) {
    const MEMORY: usize = 10_000;
    let mut generator = Seed::from_number(seed).generator(0);
    let allowed = i64::try_from(3 * MEMORY).unwrap();
    let mut honest = Vec::new();
    C::encode(&step(), &mut honest).unwrap();
    for _ in 0..5_000 {
        let len = usize::try_from(generator.below(200)).unwrap();
        let mut bytes = vec![0; len];
        generator.fill(&mut bytes);
        if generator.chance(500_000) {
            // A valid message with some bytes changed reaches deeper code.
            bytes = honest.clone();
            for _ in 0..=generator.below(3) {
                let at = usize::try_from(generator.below(bytes.len() as u64)).unwrap();
                bytes[at] = generator.next_u32().to_le_bytes()[0];
            }
        }
        let (_, held) = decode::<C, T>(&bytes, limits(MEMORY, 64));
        // Includes text that bincode reads before it is charged.
        assert!(held <= allowed + 65_536, "{held} for {bytes:?}");
    }
}

#[test]
fn u22_random_bytes_and_changed_messages_stay_within_the_limits() {
    for seed in 1..=4 {
        random::<Postcard, Step>(seed);
        random::<Postcard, Vec<Vec<LargerMessage>>>(seed);
        #[cfg(feature = "bincode")]
        {
            random::<Bincode, Step>(seed);
            random::<Bincode, Vec<Vec<LargerMessage>>>(seed);
        }
    }
}

/// [`Large`], with text.
type LargerMessage = (Option<[u64; 30]>, String);
