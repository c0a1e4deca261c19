"""What every GPU runtime shares: programs of steps, the machine that runs them, memory, stacks that grow."""
