//! Label requests of a sending end to the nodes of a route, and their replies.
//!
//! Every node behind the first relay reserves labels, then each relay binds them to those of the
//! next hop; the first relay does both in one step. The session authenticates the sender. All
//! numbers are big-endian. Each message is a type byte of [`code`] and:
//!
//! | message | body |
//! |---|---|
//! | request 0x20 | id 8, kind 1, then by kind |
//! | kind 0, reserve transit | previous hop 32, count 1 |
//! | kind 1, reserve terminal | previous hop 32, count 1, count × flow id 8, path 1 |
//! | kind 2, bind | next hop 32, count 1, count × (label 5, next label 5, its form 1 or 17, grant 16) |
//! | kind 3, pass on | next hop 32, count 1, count × (next label 5, its form 1 or 17, grant 16) |
//! | reply 0x21 | id 8, status 1, count 1, count × (label 5, form 1 or 17, grant 16); a bind's has count 0 |
//!
//! A label is slot 4 and generation 1. A form is 0 if frames are sealed, or 1 and the 16 bytes of
//! the label's [`HopKey`] if both ends of the link accept frames by tag only. Counts are 1 to 64.
//! Terminal labels are bound at once, since their next hop is the flow. A flow gets
//! [`Granted::NONE`] (slot 2^32 - 1, generation 255, no grant) if it has the maximum number of
//! labels, or if the session has another flow of the request but not this one. Nothing is
//! retransmitted, since sessions are reliable.
//!
//! A [`RouteRelease`] (0x22: count 1, count × label 5) frees labels before they expire. It is sent
//! over the session of the request to the node that allocated them for the sender, and is not
//! answered. A late release names an old generation and frees nothing.

use wire::{NodeId, Reader, Truncated, Writer};

use crate::flow_key::FlowId;
use crate::grant::Grant;
use crate::hop::{HopForm, HopKey, LabelName, NextLabel};
use crate::message::{DecodeError, code, of_type, whole};

/// Identifies a request among those of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

impl RequestId {
    /// Moves to the next id and returns it.
    pub(crate) const fn advance(&mut self) -> Self {
        self.0 = self.0.wrapping_add(1);
        *self
    }
}

/// A request to one node of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteRequest {
    /// Reserve labels for frames from `previous` that are forwarded.
    ReserveTransit {
        /// The previous node on this route.
        previous: NodeId,
        /// Number of labels; 1 to 64.
        count: u8,
    },
    /// Reserve labels for frames from `previous` that end at flows of the requesting node.
    ReserveTerminal {
        /// The previous node on this route.
        previous: NodeId,
        /// Flows of the session between the two ends; 1 to 64.
        flows: Vec<FlowId>,
        /// Number of the path at the requesting node, under which their frames are counted.
        path: u8,
    },
    /// Reserve and bind labels for frames from the requesting node that are forwarded to `next`.
    PassOn {
        /// The next node on this route.
        next: NodeId,
        /// The next label of each; 1 to 64.
        to: Vec<GrantedNext>,
    },
    /// Bind reserved labels, so that their frames are forwarded to `next`.
    Bind {
        /// The next node on this route.
        next: NodeId,
        /// The labels; 1 to 64.
        binds: Vec<Bind>,
    },
}

/// A label and the next label that its frames are forwarded with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// Label at the receiving node of the request.
    pub label: LabelName,
    /// Label at the next hop, as it was granted.
    pub next: NextLabel,
    /// The next hop's proof that the receiving node may use `next`.
    pub grant: Grant,
}

/// A label of the next hop for the receiving node of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedNext {
    /// Label at the next hop, as it was granted.
    pub next: NextLabel,
    /// The next hop's proof that the receiving node may use `next`.
    pub grant: Grant,
}

/// A granted label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Label at the answering node.
    pub label: LabelName,
    /// How frames with it are protected.
    pub form: HopForm,
    /// Proof for the previous hop.
    pub grant: Grant,
}

impl Granted {
    /// Entry of a flow that gets no label.
    pub const NONE: Self = Self {
        label: LabelName {
            slot: u32::MAX,
            generation: u8::MAX,
        },
        form: HopForm::Sealed,
        grant: [0; 16],
    };

    pub(crate) fn next(&self) -> NextLabel {
        NextLabel {
            name: self.label,
            form: self.form.clone(),
        }
    }

    /// Returns whether this flow gets no label.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteReply {
    /// The granted labels, in the order of the request; empty for a bind.
    Done(Vec<Granted>),
    /// Nothing was changed.
    Refused(Refused),
}

/// Why a node refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// It does not do this for the requesting node.
    Policy,
    /// It has no labels left, or none for the requesting node.
    Full,
    /// Too many recent requests.
    TooMany,
    /// It has no session with the previous or next hop.
    NoLink,
    /// A label is not reserved, or already bound.
    BadLabel,
    /// A grant is invalid.
    BadGrant,
    /// The next label is already in use, possibly by another node.
    LabelTaken,
    /// The session does not have a flow.
    UnknownFlow,
}

impl RouteRequest {
    /// Appends the message to `out`.
    pub fn encode(&self, RequestId(id): RequestId, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(code::ROUTE_REQUEST);
        writer.u64(id);
        match self {
            Self::ReserveTransit { previous, count } => {
                writer.u8(0);
                writer.bytes(&previous.0);
                writer.u8(*count);
            }
            Self::ReserveTerminal {
                previous,
                flows,
                path,
            } => {
                writer.u8(1);
                writer.bytes(&previous.0);
                writer.u8(length(flows.len()));
                for FlowId(flow) in flows.iter().take(FLOWS_MAX) {
                    writer.u64(*flow);
                }
                writer.u8(*path);
            }
            Self::Bind { next, binds } => {
                writer.u8(2);
                writer.bytes(&next.0);
                writer.u8(length(binds.len()));
                for bind in binds.iter().take(FLOWS_MAX) {
                    write_label(&mut writer, bind.label);
                    write_next(&mut writer, &bind.next, &bind.grant);
                }
            }
            Self::PassOn { next, to } => {
                writer.u8(3);
                writer.bytes(&next.0);
                writer.u8(length(to.len()));
                for to in to.iter().take(FLOWS_MAX) {
                    write_next(&mut writer, &to.next, &to.grant);
                }
            }
        }
    }

    /// Decodes a whole message, including the type byte.
    ///
    /// # Errors
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &[u8]) -> Result<(RequestId, Self), DecodeError> {
        let mut reader = of_type(code::ROUTE_REQUEST, bytes)?;
        let id = RequestId(reader.u64()?);
        let kind = reader.u8()?;
        let node = NodeId(reader.array()?);
        let count = read_count(&mut reader)?;
        if count == 0 {
            return Err(DecodeError::BadValue);
        }
        let request = match kind {
            0 => Self::ReserveTransit {
                previous: node,
                count: length(count),
            },
            1 => Self::ReserveTerminal {
                previous: node,
                flows: (0..count)
                    .map(|_| reader.u64().map(FlowId))
                    .collect::<Result<_, _>>()?,
                path: reader.u8()?,
            },
            2 => Self::Bind {
                next: node,
                binds: (0..count)
                    .map(|_| read_bind(&mut reader))
                    .collect::<Result<_, _>>()?,
            },
            3 => Self::PassOn {
                next: node,
                to: (0..count)
                    .map(|_| read_next(&mut reader))
                    .collect::<Result<_, _>>()?,
            },
            _ => return Err(DecodeError::BadValue),
        };
        whole(&reader, (id, request))
    }

    /// Returns how many labels are reserved and bound. [`Self::PassOn`] does both.
    #[must_use]
    pub fn count(&self) -> u8 {
        match self {
            Self::ReserveTransit { count, .. } => *count,
            Self::ReserveTerminal { flows, .. } => length(flows.len()),
            Self::Bind { binds, .. } => length(binds.len()),
            Self::PassOn { to, .. } => length(to.len()).saturating_mul(2),
        }
    }
}

impl RouteReply {
    /// Appends the message to `out`.
    pub fn encode(&self, RequestId(id): RequestId, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(code::ROUTE_REPLY);
        writer.u64(id);
        match self {
            Self::Done(granted) => {
                writer.u8(0);
                writer.u8(length(granted.len()));
                for granted in granted.iter().take(FLOWS_MAX) {
                    write_label(&mut writer, granted.label);
                    write_form(&mut writer, &granted.form);
                    writer.bytes(&granted.grant);
                }
            }
            Self::Refused(why) => {
                writer.u8(why.to_byte());
                writer.u8(0);
            }
        }
    }

    /// Decodes a whole message, including the type byte.
    ///
    /// # Errors
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &[u8]) -> Result<(RequestId, Self), DecodeError> {
        let mut reader = of_type(code::ROUTE_REPLY, bytes)?;
        let id = RequestId(reader.u64()?);
        let status = reader.u8()?;
        let count = read_count(&mut reader)?;
        let reply = if status == 0 {
            let granted = (0..count)
                .map(|_| {
                    Ok(Granted {
                        label: read_label(&mut reader)?,
                        form: read_form(&mut reader)?,
                        grant: reader.array()?,
                    })
                })
                .collect::<Result<_, DecodeError>>()?;
            Self::Done(granted)
        } else if count == 0 {
            Self::Refused(Refused::from_byte(status).ok_or(DecodeError::BadValue)?)
        } else {
            return Err(DecodeError::BadValue);
        };
        whole(&reader, (id, reply))
    }
}

impl Refused {
    /// Ordered by their codes on the wire, from 1.
    const ALL: [Self; 8] = [
        Self::Policy,
        Self::Full,
        Self::TooMany,
        Self::NoLink,
        Self::BadLabel,
        Self::BadGrant,
        Self::LabelTaken,
        Self::UnknownFlow,
    ];

    fn to_byte(self) -> u8 {
        let code = (1..).zip(Self::ALL).find(|(_, known)| *known == self);
        code.map_or(0, |(code, _)| code)
    }

    fn from_byte(byte: u8) -> Option<Self> {
        let place = usize::from(byte).checked_sub(1)?;
        Self::ALL.get(place).copied()
    }
}

fn read_count(reader: &mut Reader<'_>) -> Result<usize, DecodeError> {
    let found = usize::from(reader.u8()?);
    if found > FLOWS_MAX {
        let max = FLOWS_MAX;
        return Err(DecodeError::OverLimit { found, max });
    }
    Ok(found)
}

fn read_label(reader: &mut Reader<'_>) -> Result<LabelName, Truncated> {
    Ok(LabelName {
        slot: reader.u32()?,
        generation: reader.u8()?,
    })
}

fn read_form(reader: &mut Reader<'_>) -> Result<HopForm, DecodeError> {
    match reader.u8()? {
        0 => Ok(HopForm::Sealed),
        1 => Ok(HopForm::TagOnly(HopKey(reader.array()?))),
        _ => Err(DecodeError::BadValue),
    }
}

fn read_bind(reader: &mut Reader<'_>) -> Result<Bind, DecodeError> {
    let label = read_label(reader)?;
    let GrantedNext { next, grant } = read_next(reader)?;
    Ok(Bind { label, next, grant })
}

fn read_next(reader: &mut Reader<'_>) -> Result<GrantedNext, DecodeError> {
    Ok(GrantedNext {
        next: NextLabel {
            name: read_label(reader)?,
            form: read_form(reader)?,
        },
        grant: reader.array()?,
    })
}

fn write_label(writer: &mut Writer<'_>, label: LabelName) {
    writer.u32(label.slot);
    writer.u8(label.generation);
}

fn write_next(writer: &mut Writer<'_>, next: &NextLabel, grant: &Grant) {
    write_label(writer, next.name);
    write_form(writer, &next.form);
    writer.bytes(grant);
}

fn write_form(writer: &mut Writer<'_>, form: &HopForm) {
    writer.u8(u8::from(form.is_tag_only()));
    writer.bytes(form.key());
}

/// Encodes a count, at most [`FLOWS_MAX`].
fn length(count: usize) -> u8 {
    u8::try_from(count.min(FLOWS_MAX)).unwrap_or(u8::MAX)
}

/// Labels to free; 1 to 64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRelease(Vec<LabelName>);

impl RouteRelease {
    /// Maximum number of labels per message.
    pub const COUNT_MAX: usize = FLOWS_MAX;

    /// Creates a release of the first 64 of `labels`; `None` if there are none.
    #[must_use]
    pub fn new(labels: impl IntoIterator<Item = LabelName>) -> Option<Self> {
        let labels: Vec<LabelName> = labels.into_iter().take(Self::COUNT_MAX).collect();
        (!labels.is_empty()).then_some(Self(labels))
    }

    /// Returns the labels.
    #[must_use]
    pub fn labels(&self) -> &[LabelName] {
        &self.0
    }

    /// Returns the number of labels.
    #[must_use]
    pub fn count(&self) -> u8 {
        u8::try_from(self.0.len()).unwrap_or(u8::MAX)
    }

    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(code::ROUTE_RELEASE);
        writer.u8(self.count());
        for label in &self.0 {
            write_label(&mut writer, *label);
        }
    }

    /// Decodes a whole message with its type byte.
    ///
    /// # Errors
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = of_type(code::ROUTE_RELEASE, bytes)?;
        let count = read_count(&mut reader)?;
        if count == 0 {
            return Err(DecodeError::BadValue);
        }
        let labels = (0..count)
            .map(|_| read_label(&mut reader))
            .collect::<Result<_, _>>()?;
        whole(&reader, Self(labels))
    }
}

/// Maximum number of flows per request.
pub const FLOWS_MAX: usize = 64;

#[cfg(test)]
mod tests;
