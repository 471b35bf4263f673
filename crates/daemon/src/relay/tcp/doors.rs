//! The TCP ports of games, and whose turn it is.

use std::collections::BTreeMap;
use std::ops::Bound;

use relay_mesh::TcpPort;

use super::door::Door;

/// Ports that are listened on, by token. Those that somebody may stand before take turns, so that a
/// crowd at one holds up nobody at another.
#[derive(Debug, Default)]
pub(super) struct Doors {
    held: BTreeMap<usize, Door>,
    /// Who had the last turn.
    last: usize,
}

impl Doors {
    pub(super) fn insert(&mut self, token: usize, door: Door) {
        self.held.insert(token, door);
    }

    /// Listens no more on a port.
    pub(super) fn close(&mut self, port: TcpPort) {
        self.held.retain(|_, door| door.port != port);
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
    }

    /// The door whose turn it is, of those that somebody may stand before.
    pub(super) fn next(&self) -> Option<usize> {
        let behind = (Bound::Excluded(self.last), Bound::Unbounded);
        let round = self.held.range(behind).chain(self.held.range(..=self.last));
        let mut waiting = round.filter(|(_, door)| door.may_hold);
        waiting.next().map(|(token, _)| *token)
    }

    /// Gives a door its turn.
    pub(super) fn take_turn(&mut self, token: usize) -> Option<&mut Door> {
        self.last = token;
        self.get_mut(token)
    }

    pub(super) fn get_mut(&mut self, token: usize) -> Option<&mut Door> {
        self.held.get_mut(&token)
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::door;
    use super::*;

    /// A door each for these tokens, none of which anybody stands before.
    fn doors(tokens: &[usize]) -> Doors {
        let mut doors = Doors::default();
        for &token in tokens {
            let door = Door {
                io: door::listen(("127.0.0.1:0".parse().unwrap(), false)).unwrap(),
                port: TcpPort(u32::try_from(token).unwrap()),
                may_hold: false,
            };
            doors.insert(token, door);
        }
        doors
    }

    fn crowd(doors: &mut Doors, tokens: &[usize]) {
        for &token in tokens {
            doors.get_mut(token).unwrap().may_hold = true;
        }
    }

    /// Who gets so many turns.
    fn turns(doors: &mut Doors, count: usize) -> Vec<usize> {
        let mut turn = || {
            let token = doors.next()?;
            doors.take_turn(token).map(|_| token)
        };
        (0..count).map_while(|_| turn()).collect()
    }

    #[test]
    fn a_crowd_at_one_door_has_one_turn_of_those_who_wait() {
        let mut doors = doors(&[0, 3, 7]);
        assert!(turns(&mut doors, 1).is_empty());
        crowd(&mut doors, &[0, 7]);
        assert_eq!(turns(&mut doors, 4), [7, 0, 7, 0]);
        crowd(&mut doors, &[3]);
        assert_eq!(turns(&mut doors, 5), [3, 7, 0, 3, 7]);
        for token in [0, 3] {
            doors.get_mut(token).unwrap().may_hold = false;
        }
        assert_eq!(turns(&mut doors, 2), [7, 7]);
    }

    #[test]
    fn a_turn_that_is_not_taken_is_not_lost_nor_is_one_whose_door_is_shut() {
        let mut doors = doors(&[1, 2, 3]);
        crowd(&mut doors, &[1, 2, 3]);
        assert_eq!(turns(&mut doors, 1), [1]);
        assert_eq!([doors.next(), doors.next()], [Some(2), Some(2)]);
        assert_eq!(turns(&mut doors, 1), [2]);
        doors.close(TcpPort(2));
        assert_eq!(turns(&mut doors, 3), [3, 1, 3]);
        doors.clear();
        assert_eq!((doors.next(), doors.len()), (None, 0));
    }
}
