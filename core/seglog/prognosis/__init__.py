"""Would a broker start on these log directories, and what would it do to the data?"""
