//! What an adversary has seen of a group.

use std::collections::VecDeque;

use wire::Generator;

use crate::Mutation;
use crate::mutation::below;

/// The newest datagrams or records that any machine sent.
#[derive(Debug, Default)]
pub(super) struct Captures {
    newest: VecDeque<Vec<u8>>,
}

impl Captures {
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        if self.newest.len() >= KEPT {
            self.newest.pop_front();
        }
        self.newest.push_back(bytes.to_vec());
    }

    /// Returns a hostile variant of one of them; random bytes while there is none.
    pub(super) fn mutate(&self, generator: &mut Generator) -> Vec<u8> {
        let original = self.newest.get(below(generator, self.newest.len()));
        match original {
            Some(original) => Mutation::draw(generator).apply(generator, original),
            None => Mutation::Replace.apply(generator, &[]),
        }
    }
}

/// Enough to hold the handshake of a small group and what follows.
const KEPT: usize = 64;
