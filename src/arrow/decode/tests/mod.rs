mod support;

mod golden;
mod hostile;
