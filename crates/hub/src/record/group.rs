//! Records of groups: membership, lists and live messages.

use wire::{ClientId, Reader, Writer};

use super::{GROUP_BODY_BYTES_MAX, GroupError, LiveOutcome, PlayerIds, PlayerList, code};
use crate::field::{DecodeError, GroupId, GroupRequest, Redacted};

/// A request of a node about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupToHub<'a> {
    /// The node's number of the request.
    pub request: GroupRequest,
    /// The group.
    pub group: GroupId,
    /// What is requested.
    pub action: GroupAction<'a>,
}

/// What a node requests of a group. Each record begins with `code 1, request 8, group 8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupAction<'a> {
    /// `player 8`: becomes a member.
    Join(ClientId),
    /// `player 8`: is no member any more.
    Leave(ClientId),
    /// `first 8`: the members from this one on, one page.
    List(ClientId),
    /// `body...`: a live message to all members.
    Send(Redacted<&'a [u8]>),
}

impl<'a> GroupToHub<'a> {
    pub(super) fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let request = GroupRequest(reader.u64()?);
        let group = GroupId(reader.u64()?);
        let action = match code {
            code::GROUP_JOIN => GroupAction::Join(ClientId(reader.u64()?)),
            code::GROUP_LEAVE => GroupAction::Leave(ClientId(reader.u64()?)),
            code::GROUP_LIST => GroupAction::List(ClientId(reader.u64()?)),
            code::GROUP_SEND => GroupAction::Send(Redacted::decode(reader, GROUP_BODY_BYTES_MAX)?),
            code => return Err(DecodeError::Code(code)),
        };
        Ok(Self {
            request,
            group,
            action,
        })
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        let (request, group) = (&self.request, &self.group);
        match &self.action {
            GroupAction::Join(player) => out.fields(&[&code::GROUP_JOIN, request, group, player]),
            GroupAction::Leave(player) => out.fields(&[&code::GROUP_LEAVE, request, group, player]),
            GroupAction::List(first) => out.fields(&[&code::GROUP_LIST, request, group, first]),
            GroupAction::Send(body) => out.fields(&[&code::GROUP_SEND, request, group, body]),
        }
    }
}

/// The answer to a request about a group. Each record begins with `code 1, request 8`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupToNode {
    /// `status 1`; 0 if the membership is on disk, else a [`GroupError`].
    Done {
        /// The request.
        request: GroupRequest,
        /// Whether it was executed.
        result: Result<(), GroupError>,
    },
    /// `page 1 [, count 2, players 8 each]`; page 0 is empty, 1 is the last, and more follow 2.
    Members {
        /// The request.
        request: GroupRequest,
        /// The members, in increasing order; `None` if there are none.
        players: Option<PlayerIds>,
        /// Whether more follow.
        more: bool,
    },
    /// `reached 2, offline 2, busy 2, refused 2`
    Sent {
        /// The request.
        request: GroupRequest,
        /// How many members the message reached.
        outcome: LiveOutcome,
    },
}

impl GroupToNode {
    pub(crate) const fn busy(request: GroupRequest) -> Self {
        let result = Err(GroupError::Busy);
        Self::Done { request, result }
    }

    pub(super) fn decode(code: u8, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let request = GroupRequest(reader.u64()?);
        Ok(match code {
            code::GROUP_DONE => Self::Done {
                request,
                result: match reader.u8()? {
                    0 => Ok(()),
                    status => Err(GroupError::from_code(status)?),
                },
            },
            code::GROUP_MEMBERS => {
                let page = reader.u8()?;
                let players = match page {
                    0 => None,
                    1 | 2 => Some(PlayerList::decode(reader)?.to_ids()),
                    page => return Err(DecodeError::Choice(page)),
                };
                Self::Members {
                    request,
                    players,
                    more: page == 2,
                }
            }
            code::GROUP_SENT => Self::Sent {
                request,
                outcome: LiveOutcome::decode(reader)?,
            },
            code => return Err(DecodeError::Code(code)),
        })
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Done { request, result } => {
                out.fields(&[&code::GROUP_DONE, request]);
                match result {
                    Ok(()) => out.u8(0),
                    Err(error) => out.fields(&[error]),
                }
            }
            Self::Members {
                request,
                players,
                more,
            } => {
                out.fields(&[&code::GROUP_MEMBERS, request]);
                match players {
                    None => out.u8(0),
                    Some(players) => {
                        let page = if *more { 2_u8 } else { 1 };
                        out.fields(&[&page, &players.list()]);
                    }
                }
            }
            Self::Sent { request, outcome } => {
                out.fields(&[&code::GROUP_SENT, request, outcome]);
            }
        }
    }
}
