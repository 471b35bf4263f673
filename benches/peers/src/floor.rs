//! The bare floor: header, AEAD and replay window of each packet, and nothing else.

use benches::floor::BareDirection;

use crate::case::{Case, Direction};
use crate::pair::{Carried, Link};

/// What rows call it.
pub const NAME: &str = "floor";

/// Room for messages in a datagram of 1,200 bytes: less header and tag, and 2 bytes for each
/// message, the least by which a receiver could tell them apart.
const ROOM: usize = 1_200 - 23;

/// A link that has no connection, acknowledgement, loss, timer or event.
#[derive(Debug)]
pub struct Floor {
    directions: Vec<BareDirection>,
    /// Lengths of the packets that carry what one sender sends in a tick.
    packets: Vec<usize>,
    /// Messages of a tick, all senders.
    messages: u64,
    bytes: Vec<u8>,
    carried: Carried,
}

impl Floor {
    /// A floor under `case`.
    pub fn new(case: Case) -> Self {
        let senders = match case.direction {
            Direction::Both => 2,
            Direction::Up => 1,
        };
        Self {
            directions: (0..senders).map(|_| BareDirection::new()).collect(),
            packets: packets(case),
            messages: case.count as u64 * senders,
            bytes: vec![0x5A; ROOM],
            carried: Carried::default(),
        }
    }
}

/// Lengths of the fewest packets that carry the messages of a tick.
fn packets(case: Case) -> Vec<usize> {
    if case.len > ROOM {
        let mut packets = vec![ROOM; case.len / ROOM];
        packets.push(case.len % ROOM);
        return packets;
    }
    let in_one = if case.count == 1 {
        1
    } else {
        ROOM / (case.len + 2)
    };
    let mut packets = vec![in_one * case.len; case.count / in_one];
    packets.extend(Some(case.count % in_one * case.len).filter(|rest| *rest > 0));
    packets
}

impl Link for Floor {
    fn tick(&mut self) {
        for direction in &mut self.directions {
            for len in &self.packets {
                direction.pass(&self.bytes[..*len]);
                self.carried.datagrams += 1;
            }
        }
        self.carried.messages += self.messages;
    }

    fn carried(&self) -> Carried {
        self.carried
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::CASES;

    #[test]
    fn it_carries_every_byte_in_the_fewest_packets() {
        let found = CASES.map(|case| {
            let packets = packets(case);
            assert_eq!(packets.iter().sum::<usize>(), case.len * case.count);
            packets.len()
        });
        assert_eq!(found, [1, 1, 1, 3, 56]);
    }
}
