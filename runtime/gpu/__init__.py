"""What every GPU runtime shares: programs of steps, how they are run, memory, stacks that grow."""
