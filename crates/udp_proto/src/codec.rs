//! Typed messages of an application, on top of untyped channels.
//!
//! The first two bytes of a message are its type's id, big-endian, assigned by its author
//! ([`Typed::ID`]); a [`Codec`] encodes the rest. A [`Registry`] knows all types, rejects duplicate
//! ids, and dispatches received messages. Its [`Catalogue`] goes into
//! [`Config::messages`](crate::Config::messages): the handshake then refuses a peer whose types,
//! versions or codec differ, with [`CloseCode::ChannelConfig`](crate::CloseCode::ChannelConfig), at
//! no extra bytes.
//!
//! [`Limits`] bound what decoding may take. The protocol itself does not use this module.
#![cfg_attr(
    feature = "postcard",
    doc = r"
```
use serde::{Deserialize, Serialize};
use udp_proto::codec::{Postcard, Registry, Typed};
use udp_proto::{Config, SessionId};

#[derive(Serialize, Deserialize)]
struct Move { dx: i8, dy: i8 }

impl Typed for Move {
    const ID: u16 = 1;
    const VERSION: u16 = 1;
}

struct World { x: i64 }

let registry = Registry::<Postcard, World>::new()
    .takes(|world: &mut World, _from: SessionId, step: Move| world.x += i64::from(step.dx))?;
let mut config = Config::default();
config.messages = registry.catalogue();

let mut bytes = Vec::new();
registry.encode(&Move { dx: 3, dy: 0 }, &mut bytes)?;
assert_eq!(bytes, [0, 1, 3, 0]);

let mut world = World { x: 0 };
registry.dispatch(&mut world, SessionId::default(), &bytes)?;
assert_eq!(world.x, 3);
# Ok::<(), Box<dyn std::error::Error>>(())
```
"
)]

#[cfg(feature = "bincode")]
mod bincode;
#[cfg(feature = "codec")]
mod limited;
#[cfg(feature = "postcard")]
mod postcard;
#[cfg(feature = "codec")]
mod typed;

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::Writer;

#[cfg(feature = "bincode")]
pub use self::bincode::Bincode;
#[cfg(feature = "postcard")]
pub use self::postcard::Postcard;
#[cfg(feature = "codec")]
pub use limited::{Budget, Limited};
#[cfg(feature = "codec")]
pub use typed::{Codec, DecodeError, DispatchError, EncodeError, Limits, Registry, TakenId, Typed};

/// The types of an application's messages, with their versions and codec.
///
/// Empty by default; then the ends need only agree on their channels. Clones share one list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// Part of the channel digest; empty without types.
    encoded: Arc<[u8]>,
}

impl Catalogue {
    /// Creates a catalogue of types, by id with their versions, encoded by the codec with code
    /// `codec`: 0 for postcard, 1 for bincode, from 128 for custom ones.
    #[must_use]
    pub fn new(codec: u8, types: &BTreeMap<u16, u16>) -> Self {
        let mut encoded = Vec::new();
        let mut writer = Writer::new(&mut encoded);
        writer.u8(codec);
        for (id, version) in types {
            writer.u16(*id);
            writer.u16(*version);
        }
        Self {
            encoded: encoded.into(),
        }
    }

    /// Appends what both ends must agree on. The channel digest hashes the channel table and this:
    /// `codec 1 | types * (id 2 | version 2)`, big-endian, ids ascending; nothing without a
    /// catalogue.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.encoded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u22_the_encoding_is_frozen() {
        let mut out = Vec::new();
        Catalogue::default().encode(&mut out);
        assert_eq!(out, [0; 0]);
        Catalogue::new(1, &BTreeMap::from([(0x0102, 3), (7, 0x0405)])).encode(&mut out);
        assert_eq!(out, [1, 0, 7, 4, 5, 1, 2, 0, 3]);
    }
}
