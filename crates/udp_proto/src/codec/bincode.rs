//! The bincode 2.0.1 format.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::enc::write::Writer;
use serde::Serialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer};

use super::limited::Budget;
use super::{Codec, DecodeError, EncodeError, Limits};

/// bincode's standard format. Decoding a value claims at most `BYTES_MAX` bytes; 64 KiB by default.
///
/// bincode is unmaintained (RUSTSEC-2025-0141). Its limit applies to claimed lengths before
/// anything is read, and is set at compile time, so that no run-time configuration can remove it.
#[derive(Clone, Copy, Debug)]
pub struct Bincode<const BYTES_MAX: usize = 65_536>;

impl<const BYTES_MAX: usize> Bincode<BYTES_MAX> {
    const fn configuration() -> Configuration<LittleEndian, Varint, Limit<BYTES_MAX>> {
        bincode::config::standard().with_limit::<BYTES_MAX>()
    }
}

impl<const BYTES_MAX: usize> Codec for Bincode<BYTES_MAX> {
    const CODE: u8 = 1;

    fn encode<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let writer = Appender(out);
        bincode::serde::encode_into_writer(value, writer, Self::configuration())
            .map_err(|_| EncodeError::Unsupported)
    }

    fn decode<T: DeserializeOwned>(bytes: &[u8], limits: Limits) -> Result<T, DecodeError> {
        let budget = Budget::new(limits);
        let seed = Limiting {
            budget: &budget,
            value: core::marker::PhantomData,
        };
        match bincode::serde::seed_decode_from_slice(seed, bytes, Self::configuration()) {
            Ok((value, used)) if used == bytes.len() => Ok(value),
            Ok(_) => Err(DecodeError::Trailing),
            Err(bincode::error::DecodeError::LimitExceeded) => Err(DecodeError::TooLarge),
            Err(_) => Err(budget.cause()),
        }
    }
}

struct Limiting<'a, T> {
    budget: &'a Budget,
    value: core::marker::PhantomData<T>,
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for Limiting<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::deserialize(self.budget.limit(deserializer))
    }
}

struct Appender<'a>(&'a mut Vec<u8>);

impl Writer for Appender<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}
