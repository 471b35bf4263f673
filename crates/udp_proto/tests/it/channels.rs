//! Two sides exchange messages over a lossy pipe.

mod delivery;
mod fates;
mod given_up;
mod hostile;
mod kinds;
mod pipe;
mod repeats;
mod schedule;
