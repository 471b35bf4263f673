//! The postcard format.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::limited::Budget;
use super::{Codec, DecodeError, EncodeError, Limits};

/// Values in postcard's format, version 1: variable-length integers, no names.
#[derive(Clone, Copy, Debug)]
pub struct Postcard;

impl Codec for Postcard {
    const CODE: u8 = 0;

    fn encode<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        *out = postcard::to_extend(value, core::mem::take(out))
            .map_err(|_| EncodeError::Unsupported)?;
        Ok(())
    }

    fn decode<T: DeserializeOwned>(bytes: &[u8], limits: Limits) -> Result<T, DecodeError> {
        let budget = Budget::new(limits);
        let mut deserializer = postcard::Deserializer::from_bytes(bytes);
        let value = T::deserialize(budget.limit(&mut deserializer)).map_err(|_| budget.cause())?;
        match deserializer.finalize() {
            Ok([]) => Ok(value),
            Ok(_) => Err(DecodeError::Trailing),
            Err(_) => Err(DecodeError::Malformed),
        }
    }
}
