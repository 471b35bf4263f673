mod down;
mod early;
