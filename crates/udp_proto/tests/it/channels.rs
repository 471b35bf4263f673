//! Two sides exchange messages over a lossy pipe.

mod delivery;
mod hostile;
mod pipe;
mod schedule;
