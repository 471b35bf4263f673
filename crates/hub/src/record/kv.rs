//! Records of the key-value store.

use wire::{Encode, Reader, Writer};

use super::code;
use crate::field::{DecodeError, KvRequest, Redacted, WatchId};
use crate::kv::{
    Durability, KvError, KvKey, KvLease, KvPrefix, KvRange, PAGE_ENTRIES_MAX, Revision,
    VALUE_BYTES_MAX,
};

/// A request of a node to the key-value store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvToHub<'a> {
    /// `code 1, request 8, flags 1, expected 8, key, value...`; flag 1: in memory, 2: with a lease, 4:
    /// `expected` counts, and is zero otherwise.
    Put {
        /// The node's number of the request.
        request: KvRequest,
        /// The key.
        key: KvKey,
        /// Whether the key survives a restart of the hub.
        durability: Durability,
        /// Whether the key is deleted when the node's run ends.
        lease: bool,
        /// The revision that the key must have, if any.
        expected: Option<Revision>,
        /// The value.
        value: Redacted<&'a [u8]>,
    },
    /// `code 1, request 8, flags 1, expected 8, key`; flag 4 as above.
    Delete {
        /// The node's number of the request.
        request: KvRequest,
        /// The key.
        key: KvKey,
        /// The revision that the key must have, if any.
        expected: Option<Revision>,
    },
    /// `code 1, request 8, key`
    Get {
        /// The node's number of the request.
        request: KvRequest,
        /// The key.
        key: KvKey,
    },
    /// `code 1, request 8, limit 2, from, to`
    Range {
        /// The node's number of the request.
        request: KvRequest,
        /// Most entries of the answer, 1 to 1,024.
        limit: u16,
        /// The keys.
        range: KvRange,
    },
    /// `code 1, watch 8, from 8, prefix`
    Watch {
        /// The node's number of the watch.
        watch: WatchId,
        /// The last revision that the node has; zero for none.
        from: Revision,
        /// The first characters of the keys.
        prefix: KvPrefix,
    },
    /// `code 1, watch 8`
    Unwatch(WatchId),
}

const MEMORY: u8 = 1;
const LEASE: u8 = 2;
const CONDITION: u8 = 4;

impl<'a> KvToHub<'a> {
    pub(super) fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            code::KV_PUT => {
                let request = KvRequest(reader.u64()?);
                let flags = decode_flags(reader, MEMORY | LEASE | CONDITION)?;
                let durability = if flags & MEMORY == 0 {
                    Durability::Disk
                } else {
                    Durability::Memory
                };
                Self::Put {
                    request,
                    durability,
                    lease: flags & LEASE != 0,
                    expected: decode_expected(reader, flags)?,
                    key: KvKey::decode(reader)?,
                    value: Redacted::decode(reader, VALUE_BYTES_MAX)?,
                }
            }
            code::KV_DELETE => {
                let request = KvRequest(reader.u64()?);
                let flags = decode_flags(reader, CONDITION)?;
                Self::Delete {
                    request,
                    expected: decode_expected(reader, flags)?,
                    key: KvKey::decode(reader)?,
                }
            }
            code::KV_GET => Self::Get {
                request: KvRequest(reader.u64()?),
                key: KvKey::decode(reader)?,
            },
            code::KV_RANGE => {
                let request = KvRequest(reader.u64()?);
                let limit = reader.u16()?;
                if limit == 0 || limit > PAGE_ENTRIES_MAX {
                    return Err(DecodeError::Count);
                }
                Self::Range {
                    request,
                    limit,
                    range: KvRange::decode(reader)?,
                }
            }
            code::KV_WATCH => Self::Watch {
                watch: WatchId(reader.u64()?),
                from: Revision(reader.u64()?),
                prefix: KvPrefix::decode(reader)?,
            },
            code::KV_UNWATCH => Self::Unwatch(WatchId(reader.u64()?)),
            code => return Err(DecodeError::Code(code)),
        })
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Put {
                request,
                key,
                durability,
                lease,
                expected,
                value,
            } => {
                let memory = match durability {
                    Durability::Disk => 0,
                    Durability::Memory => MEMORY,
                };
                let lease = if *lease { LEASE } else { 0 };
                out.fields(&[&code::KV_PUT, request]);
                encode_condition(memory | lease, *expected, out);
                out.fields(&[key, value]);
            }
            Self::Delete {
                request,
                key,
                expected,
            } => {
                out.fields(&[&code::KV_DELETE, request]);
                encode_condition(0, *expected, out);
                key.encode(out);
            }
            Self::Get { request, key } => out.fields(&[&code::KV_GET, request, key]),
            Self::Range {
                request,
                limit,
                range,
            } => out.fields(&[&code::KV_RANGE, request, limit, range]),
            Self::Watch {
                watch,
                from,
                prefix,
            } => out.fields(&[&code::KV_WATCH, watch, from, prefix]),
            Self::Unwatch(watch) => out.fields(&[&code::KV_UNWATCH, watch]),
        }
    }
}

fn decode_flags(reader: &mut Reader<'_>, allowed: u8) -> Result<u8, DecodeError> {
    let flags = reader.u8()?;
    if flags & !allowed == 0 {
        Ok(flags)
    } else {
        Err(DecodeError::Choice(flags))
    }
}

fn decode_expected(reader: &mut Reader<'_>, flags: u8) -> Result<Option<Revision>, DecodeError> {
    let expected = Revision(reader.u64()?);
    if flags & CONDITION != 0 {
        Ok(Some(expected))
    } else if expected == Revision::NONE {
        Ok(None)
    } else {
        Err(DecodeError::Choice(flags))
    }
}

fn encode_condition(flags: u8, expected: Option<Revision>, out: &mut Writer<'_>) {
    let condition = if expected.is_some() { CONDITION } else { 0 };
    out.fields(&[&(flags | condition), &expected.unwrap_or_default()]);
}

/// An answer of the key-value store, or a change for a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvToNode<'a> {
    /// The end of a write, or the failure of any request: `code 1, request 8, status 1, revision 8`.
    /// Status 0 is done, else an error; the revision is the new one, or the current one of a conflict.
    Done {
        /// The node's number of the request.
        request: KvRequest,
        /// The revision of the change.
        result: Result<Revision, KvError>,
    },
    /// `code 1, request 8, found 1 [, item]`
    Entry {
        /// The node's number of the request.
        request: KvRequest,
        /// The entry, if the key exists.
        item: Option<KvItem<'a>>,
    },
    /// `code 1, request 8, more 1, count 2, items...`
    Page {
        /// The node's number of the request.
        request: KvRequest,
        /// Whether more keys follow.
        more: bool,
        /// The entries, ordered by key.
        items: Vec<KvItem<'a>>,
    },
    /// What the watch has reported so far is void; a snapshot follows: `code 1, watch 8`
    Reset(WatchId),
    /// `code 1, watch 8, revision 8, key, set 1 [, lease, value...]`
    Change {
        /// The node's number of the watch.
        watch: WatchId,
        /// The key.
        key: KvKey,
        /// The revision of the change.
        revision: Revision,
        /// The value with its lease; `None` if the key was deleted.
        value: Option<(Redacted<&'a [u8]>, Option<KvLease>)>,
    },
    /// The changes up to this revision were all reported: `code 1, watch 8, revision 8`
    Complete {
        /// The node's number of the watch.
        watch: WatchId,
        /// The revision.
        revision: Revision,
    },
}

/// An entry in an answer: `key, revision 8, lease, length 4, value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvItem<'a> {
    /// The key.
    pub key: KvKey,
    /// The revision of the last change.
    pub revision: Revision,
    /// The run whose end deletes the key, if any.
    pub lease: Option<KvLease>,
    /// The value.
    pub value: Redacted<&'a [u8]>,
}

impl<'a> KvItem<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let key = KvKey::decode(reader)?;
        let revision = Revision(reader.u64()?);
        let lease = KvLease::decode_option(reader)?;
        let len = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
        if len > VALUE_BYTES_MAX {
            return Err(DecodeError::Count);
        }
        Ok(Self {
            key,
            revision,
            lease,
            value: Redacted(reader.bytes(len)?),
        })
    }
}

impl Encode for KvItem<'_> {
    fn encode(&self, out: &mut Writer<'_>) {
        out.fields(&[&self.key, &self.revision]);
        KvLease::encode_option(self.lease.as_ref(), out);
        out.u32(u32::try_from(self.value.len()).unwrap_or(u32::MAX));
        out.bytes(&self.value);
    }
}

impl<'a> KvToNode<'a> {
    pub(super) fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            code::KV_DONE => {
                let request = KvRequest(reader.u64()?);
                let status = reader.u8()?;
                let revision = Revision(reader.u64()?);
                let result = match status {
                    0 => Ok(revision),
                    status => Err(KvError::from_code(status, revision)?),
                };
                Self::Done { request, result }
            }
            code::KV_ENTRY => Self::Entry {
                request: KvRequest(reader.u64()?),
                item: super::decode_flag(reader)?
                    .then(|| KvItem::decode(reader))
                    .transpose()?,
            },
            code::KV_PAGE => {
                let request = KvRequest(reader.u64()?);
                let more = super::decode_flag(reader)?;
                let count = reader.u16()?;
                if count > PAGE_ENTRIES_MAX {
                    return Err(DecodeError::Count);
                }
                let items = (0..count).map(|_| KvItem::decode(reader));
                Self::Page {
                    request,
                    more,
                    items: items.collect::<Result<_, _>>()?,
                }
            }
            code::KV_RESET => Self::Reset(WatchId(reader.u64()?)),
            code::KV_CHANGE => Self::Change {
                watch: WatchId(reader.u64()?),
                revision: Revision(reader.u64()?),
                key: KvKey::decode(reader)?,
                value: if super::decode_flag(reader)? {
                    let lease = KvLease::decode_option(reader)?;
                    Some((Redacted::decode(reader, VALUE_BYTES_MAX)?, lease))
                } else {
                    None
                },
            },
            code::KV_COMPLETE => Self::Complete {
                watch: WatchId(reader.u64()?),
                revision: Revision(reader.u64()?),
            },
            code => return Err(DecodeError::Code(code)),
        })
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Done { request, result } => {
                out.fields(&[&code::KV_DONE, request]);
                match result {
                    Ok(revision) => out.fields(&[&0_u8, revision]),
                    Err(error) => error.encode(out),
                }
            }
            Self::Entry { request, item } => {
                out.fields(&[&code::KV_ENTRY, request, &u8::from(item.is_some())]);
                if let Some(item) = item {
                    item.encode(out);
                }
            }
            Self::Page {
                request,
                more,
                items,
            } => {
                let count = u16::try_from(items.len()).unwrap_or(u16::MAX);
                out.fields(&[&code::KV_PAGE, request, &u8::from(*more), &count]);
                for item in items {
                    item.encode(out);
                }
            }
            Self::Reset(watch) => out.fields(&[&code::KV_RESET, watch]),
            Self::Change {
                watch,
                key,
                revision,
                value,
            } => {
                out.fields(&[&code::KV_CHANGE, watch, revision, key]);
                out.u8(u8::from(value.is_some()));
                if let Some((value, lease)) = value {
                    KvLease::encode_option(lease.as_ref(), out);
                    value.encode(out);
                }
            }
            Self::Complete { watch, revision } => {
                out.fields(&[&code::KV_COMPLETE, watch, revision]);
            }
        }
    }
}
