//! Codecs of typed application messages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use udp_proto::codec::{Bincode, Codec, Limits, Postcard};

/// A value with every kind of data that a format distinguishes.
#[derive(Serialize, Deserialize)]
enum Value {
    Nothing,
    Number(u64),
    Signed(i32),
    Real(f32),
    Text(String),
    Bytes(Vec<u8>),
    Units(Vec<()>),
    Pair(Box<Self>, Option<Box<Self>>),
    Map(BTreeMap<u16, Self>),
    Named {
        flag: bool,
        letter: char,
        wide: u128,
    },
}

/// Decodes with the codec selected by the first byte. An accepted value encodes and decodes again
/// to the same bytes.
pub fn typed(data: &[u8]) {
    match data {
        [choice, body @ ..] if choice.is_multiple_of(2) => decode::<Postcard>(body),
        [_, body @ ..] => decode::<Bincode<4_096>>(body),
        [] => {}
    }
}

fn decode<C: Codec>(bytes: &[u8]) {
    let mut limits = Limits::default();
    limits.memory_max = 65_536;
    limits.depth_max = 64;
    let Ok(value) = C::decode::<Value>(bytes, limits) else {
        return;
    };
    let mut first = Vec::new();
    C::encode(&value, &mut first).expect("what was read can be written");
    let again = C::decode::<Value>(&first, limits).expect("what was written can be read");
    let mut second = Vec::new();
    C::encode(&again, &mut second).expect("what was read can be written");
    assert_eq!(first, second);
}
