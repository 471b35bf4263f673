//! First bytes of records. A code is never reused.

/// Node: identifies itself; the first record of a link.
pub const JOIN: u8 = 0x01;
/// Node: is alive; renews all its leases.
pub const HEARTBEAT: u8 = 0x02;
/// Node: leaves; ends all its leases.
pub const LEAVE: u8 = 0x03;
/// Node: a call, which gets one reply.
pub const CALL: u8 = 0x04;
/// Node: the reply to a request.
pub const REPLY: u8 = 0x05;
/// Node: a mail to store.
pub const MAIL: u8 = 0x06;
/// Node: acknowledges all mail of a mailbox up to a number.
pub const MAIL_ACK: u8 = 0x07;
/// Node: claims a player.
pub const CLAIM: u8 = 0x08;
/// Node: releases a player.
pub const RELEASE: u8 = 0x09;
/// Node: a broadcast to all other nodes.
pub const BROADCAST: u8 = 0x0a;
/// Node: a batch of counts.
pub const COUNTS: u8 = 0x0b;

/// Hub: accepts the join.
pub const JOINED: u8 = 0x41;
/// Hub: is alive.
pub const HUB_HEARTBEAT: u8 = 0x42;
/// Hub: closes the link, with the reason.
pub const DOWN: u8 = 0x43;
/// Hub: a request to answer.
pub const REQUEST: u8 = 0x44;
/// Hub: the reply to a call.
pub const CALL_REPLY: u8 = 0x45;
/// Hub: the verdict on a run of mails.
pub const MAIL_SETTLED: u8 = 0x46;
/// Hub: a mail for a player.
pub const DELIVER: u8 = 0x47;
/// Hub: grants a claim.
pub const GRANTED: u8 = 0x48;
/// Hub: a claim has ended.
pub const REVOKED: u8 = 0x49;
/// Hub: a broadcast from another node.
pub const HUB_BROADCAST: u8 = 0x4a;
/// Hub: confirms batches of counts.
pub const COUNTED: u8 = 0x4b;
/// Hub: presence so far is void; a snapshot follows.
pub const PRESENCE_RESET: u8 = 0x4c;
/// Hub: state of a node.
pub const PRESENCE_NODE: u8 = 0x4d;
/// Hub: holder of a player.
pub const PRESENCE_PLAYER: u8 = 0x4e;
/// Hub: the snapshot is complete.
pub const PRESENCE_COMPLETE: u8 = 0x4f;

/// Codes reserved for later records; a decoder rejects them.
///
/// | code | record |
/// |---|---|
/// | 0x10 | forward to a player's node |
/// | 0x11 | multicast to a list of players |
/// | 0x12 | mail to a list of players, body stored once |
/// | 0x13 | cancel a call |
/// | 0x18-0x1d | KV: get, put, compare-and-swap, delete, lease, watch |
/// | 0x20-0x23 | groups: join, leave, list, send |
/// | 0x28 | query of counts |
/// | 0x30-0x37 | hub to hub |
/// | 0x50 | forwarded message |
/// | 0x58-0x5d | KV answers |
/// | 0x60-0x63 | group answers |
/// | 0x68 | answer to a query of counts |
/// | 0x70-0x77 | hub to hub |
pub const RESERVED: [(u8, u8); 11] = [
    (0x10, 0x13),
    (0x18, 0x1d),
    (0x20, 0x23),
    (0x28, 0x28),
    (0x30, 0x37),
    (0x50, 0x50),
    (0x58, 0x5d),
    (0x60, 0x63),
    (0x68, 0x68),
    (0x70, 0x77),
    (0xf0, 0xff),
];
