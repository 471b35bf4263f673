//! What the disk takes for one sync.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use crate::sample::{Recorder, Sample, now};
use crate::{PAYLOAD, Result};

/// Overwrites 128 bytes at a time in a file of zeros, and syncs each.
pub fn sync(folder: &Path) -> Result<Sample> {
    const BYTES: usize = 1 << 20;
    let mut file = File::create(folder.join("floor"))?;
    file.write_all(&vec![0; BYTES])?;
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    let mut recorder = Recorder::default();
    let mut written = 0;
    while !recorder.is_over() {
        if written + PAYLOAD > BYTES {
            file.seek(SeekFrom::Start(0))?;
            written = 0;
        }
        let since = now();
        file.write_all(&[7; PAYLOAD])?;
        file.sync_data()?;
        recorder.add(since);
        written += PAYLOAD;
    }
    Ok(recorder.finish())
}
