//! The floor: only header, AEAD and replay window of each packet.

use benches::floor::BareDirection;

use crate::case::{Case, Direction};
use crate::pair::{Carried, Link};

/// Name in rows.
pub const NAME: &str = "floor";

/// Space for messages in a datagram of 1,200 bytes: without header and tag. Each message needs
/// another 2 bytes, the minimum that lets a receiver separate them.
const ROOM: usize = 1_200 - 23;

/// A link without connection, acknowledgement, loss, timer or event.
#[derive(Debug)]
pub struct Floor {
    directions: Vec<BareDirection>,
    /// Lengths of the packets of one sender and tick.
    packets: Vec<usize>,
    /// Messages of all senders per tick.
    messages: u64,
    bytes: Vec<u8>,
    carried: Carried,
}

impl Floor {
    /// Creates the floor of `case`.
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

/// Returns the lengths of the fewest packets which carry a tick's messages.
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
    fn every_byte_is_sent_in_the_fewest_packets() {
        let found = CASES.map(|case| {
            let packets = packets(case);
            assert_eq!(packets.iter().sum::<usize>(), case.len * case.count);
            packets.len()
        });
        assert_eq!(found, [1, 1, 1, 3, 56]);
    }
}
