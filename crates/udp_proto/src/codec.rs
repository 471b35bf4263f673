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
mod catalogue;
#[cfg(feature = "codec")]
mod limited;
#[cfg(feature = "postcard")]
mod postcard;
#[cfg(feature = "codec")]
mod registry;
#[cfg(feature = "codec")]
mod typed;

#[cfg(feature = "bincode")]
pub use self::bincode::Bincode;
#[cfg(feature = "postcard")]
pub use self::postcard::Postcard;
pub use catalogue::Catalogue;
#[cfg(feature = "codec")]
pub use limited::{Budget, Limited};
#[cfg(feature = "codec")]
pub use registry::{DispatchError, Registry, TakenId};
#[cfg(feature = "codec")]
pub use typed::{Codec, DecodeError, EncodeError, Limits, Typed};
