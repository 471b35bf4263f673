//! Frames sealed in advance, to be sent together.

use relay_mesh::trunk;

use super::socket::burst;

/// Concatenated frames.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    lens: Vec<usize>,
    /// Bytes and frames already taken.
    taken: [usize; 2],
}

impl Frames {
    /// Allocates space for `count` frames of `len` bytes.
    #[must_use]
    pub fn with_capacity(count: usize, len: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(count.saturating_mul(len)),
            lens: Vec::with_capacity(count),
            taken: [0; 2],
        }
    }

    /// Appends a frame.
    pub fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.lens.push(frame.len());
    }

    /// Returns the frames in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes();
        self.lens().iter().map(move |len| {
            let (frame, behind) = rest.split_at_checked(*len).unwrap_or_default();
            rest = behind;
            frame
        })
    }

    /// Returns the number of frames.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lens().len()
    }

    /// Takes the first `count` frames, or all if there are fewer.
    #[must_use]
    pub fn take_front(&mut self, count: usize) -> Self {
        let some = self.lens().get(..count).unwrap_or_else(|| self.lens());
        let lens = some.to_vec();
        let len = lens.iter().sum();
        let bytes = self.bytes().get(..len).unwrap_or_default().to_vec();
        self.taken = [self.taken[0] + bytes.len(), self.taken[1] + lens.len()];
        let taken = [0; 2];
        Self { bytes, lens, taken }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(self.taken[0]..).unwrap_or_default()
    }

    fn lens(&self) -> &[usize] {
        self.lens.get(self.taken[1]..).unwrap_or_default()
    }

    /// Returns bursts of frames of equal length, as a relay batches them for one neighbour, with
    /// the frame length.
    pub fn bursts(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let len = self.lens().first().copied().unwrap_or(1).max(1);
        let bursts = self.bytes().chunks((burst(len) * len).max(1));
        bursts.map(move |bytes| (bytes, len))
    }

    /// Packs frames of different lengths into trunks, as a relay does.
    #[must_use]
    pub fn trunks(&self) -> Vec<Vec<u8>> {
        let mut trunks: Vec<Vec<u8>> = Vec::new();
        for frame in self.iter() {
            let last = trunks.last_mut();
            let open = last.filter(|trunk| trunk::grown(trunk.len(), frame.len()).is_some());
            if let Some(trunk) = open {
                trunk::append(frame, trunk);
            } else {
                let mut trunk = vec![trunk::KIND];
                trunk::append(frame, &mut trunk);
                trunks.push(trunk);
            }
        }
        trunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(lens: &[usize]) -> Frames {
        let mut frames = Frames::with_capacity(lens.len(), 100);
        for (number, len) in lens.iter().enumerate() {
            frames.push(&vec![u8::try_from(number).unwrap(); *len]);
        }
        frames
    }

    #[test]
    fn frames_are_split_in_order() {
        let mut all = frames(&[3, 2, 4]);
        let first = all.take_front(2);
        let firsts: Vec<_> = first.iter().collect();
        assert_eq!(firsts, [&[0_u8, 0, 0][..], &[1, 1]]);
        let rest: Vec<_> = all.iter().collect();
        assert_eq!(rest, [[2_u8; 4]]);
        assert_eq!(all.take_front(9).count(), 1);
        assert_eq!(all.count(), 0);
    }

    #[test]
    fn bursts_and_trunks_hold_every_frame() {
        let even = frames(&[140; 100]);
        let counts: Vec<_> = even
            .bursts()
            .map(|(bytes, len)| bytes.len() / len)
            .collect();
        assert_eq!(counts, [64, 36]);
        let mixed = frames(&[100, 140].repeat(10));
        let mut trunks = mixed.trunks();
        assert!(trunks.iter().all(|trunk| trunk.len() <= 1_280));
        let found: Vec<Vec<u8>> = trunks
            .iter_mut()
            .flat_map(|trunk| trunk::Frames::new(trunk).unwrap())
            .map(|frame| frame.unwrap().to_vec())
            .collect();
        let sent: Vec<_> = mixed.iter().map(<[u8]>::to_vec).collect();
        assert_eq!(found, sent);
    }
}
